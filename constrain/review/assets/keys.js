// The keyboard: what each key does, and the list of keys that "?" shows.

import { byId, element } from "./dom.js";

export class Keys {
  /** @param bindings [key, what it does, function] in the order of the list; the text is empty for a second key */
  constructor(bindings) {
    this.actions = new Map(bindings.map(([key, , action]) => [key, action]));
    this.dialog = byId("keys");
    const rows = bindings.filter(([, text]) => text).map(([key, text]) => keyRow(key, text));
    byId("key-list").append(...rows);
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    const isTyping = event.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (this.dialog.open || !this.actions.has(event.key)) return;
    event.preventDefault();
    this.actions.get(event.key)();
  }

  help() {
    this.dialog.showModal();
  }
}

function keyRow(key, text) {
  return element("div", {}, element("dt", {}, element("kbd", {}, key)), element("dd", {}, text));
}
