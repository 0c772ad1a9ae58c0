// The form in which a person gives another value.

import { element } from "./dom.js";
import { parseNumber, parseTyped, toJson } from "./json.js";

const KINDS = ["text", "number", "true", "false", "null", "JSON"];

/** Returns the kind of a value, as it is chosen in the form. */
export function kindOf(value) {
  if (typeof value === "string") return "text";
  if (typeof value === "number" || typeof value === "bigint") return "number";
  return typeof value === "object" && value !== null ? "JSON" : String(value);
}

export class Editor {
  /**
   * @param value the value to begin with
   * @param kind the kind that is chosen first
   * @param onSave called with the value, and with the span of the passage if it was taken from the text
   */
  constructor(value, kind, onSave, onCancel) {
    this.onSave = onSave;
    this.span = null;
    const given = kindOf(value) === "text" ? value : kindOf(value) === kind ? toJson(value) : "";
    this.input = element("textarea", { rows: 1, dir: "auto", "aria-label": "Value", input: () => this.resize() }, given);
    this.kind = element(
      "select",
      { "aria-label": "Kind of value", change: () => this.resize() },
      KINDS.map((each) => element("option", { selected: each === kind }, each)),
    );
    this.problem = element("p", { class: "problem", role: "alert" });
    this.element = element(
      "form",
      { class: "editor", submit: (event) => this.save(event), keydown: (event) => this.onKey(event, onCancel) },
      element("div", { class: "inputs" }, this.kind, this.input),
      this.problem,
      element(
        "div",
        { class: "buttons" },
        element("span", { class: "hint" }, "or select a passage of the text"),
        element("button", { type: "button", class: "quiet", click: onCancel }, "Cancel"),
        element("button", { type: "submit", class: "primary" }, "Save"),
      ),
    );
  }

  open() {
    this.resize();
    this.input.select();
    (this.input.hidden ? this.kind : this.input).focus();
  }

  resize() {
    this.input.hidden = ["true", "false", "null"].includes(this.kind.value);
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight + 2}px`;
  }

  /** Takes a passage of the text as the value. */
  take(text, span) {
    this.span = span;
    this.input.value = text;
    if (this.kind.value !== "number") this.kind.value = "text";
    this.resize();
  }

  onKey(event, onCancel) {
    if (event.key === "Escape") onCancel();
    else if (event.key === "Enter" && !event.shiftKey && event.target === this.input) this.save(event);
    else return;
    event.stopPropagation();
  }

  save(event) {
    event.preventDefault();
    try {
      const value = parsed(this.kind.value, this.input.value);
      this.onSave(value, this.span);
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }
}

function parsed(kind, text) {
  if (kind === "text") return text;
  if (kind !== "number") return parseTyped(kind === "JSON" ? text : kind);
  const number = parseNumber(text);
  if (number === undefined) throw new Error("This is no number: write it as 1234.5");
  return number;
}
