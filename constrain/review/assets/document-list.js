// The list of documents. Only the rows in view are elements, so that it may be of any length.

import { element, icon, percent } from "./dom.js";
import { levelOf } from "./colours.js";

/** Height of a row, and rows that are ready above and below the view. */
const HEIGHT = 56;
const MARGIN = 6;

export class DocumentList {
  /**
   * @param container the element that scrolls
   * @param documents all entries; folders are shown as seen from the one that these have in common
   * @param corrections the notes on documents, which rows show
   * @param onSelect called with the entry of the index that was chosen
   */
  constructor(container, documents, corrections, onSelect) {
    this.container = container;
    this.folder = commonFolder(documents);
    this.corrections = corrections;
    this.onSelect = onSelect;
    this.entries = [];
    this.selected = null;
    /** The elements of the entries in view. */
    this.rows = new Map();
    this.spacer = element("div", { class: "spacer", role: "presentation", "--row": `${HEIGHT}px` });
    container.append(this.spacer);
    container.addEventListener("scroll", () => this.renderView());
    container.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.renderView()).observe(container);
  }

  /** Shows these entries; the selected one stays selected if it is among them. */
  show(entries) {
    this.entries = entries;
    this.spacer.style.height = `${entries.length * HEIGHT}px`;
    this.container.scrollTop = Math.max(0, (this.position - 2) * HEIGHT);
    this.render();
  }

  get position() {
    return this.entries.indexOf(this.selected);
  }

  select(entry) {
    this.selected = entry;
    const { scrollTop, clientHeight } = this.container;
    const top = this.position * HEIGHT;
    if (top < scrollTop) this.container.scrollTop = top;
    else if (top + HEIGHT > scrollTop + clientHeight) this.container.scrollTop = top + HEIGHT - clientHeight;
    this.render();
  }

  /** Selects the entry some rows further down, or up if the number is negative. */
  step(number) {
    const position = this.position === -1 ? Math.min(number, 0) : this.position + number;
    const entry = this.entries[Math.max(0, Math.min(position, this.entries.length - 1))];
    if (entry && entry !== this.selected) this.onSelect(entry);
  }

  onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.step(steps[event.key]);
  }

  /** Renders the rows in view again. */
  render() {
    this.spacer.replaceChildren();
    this.rows.clear();
    this.renderView();
  }

  /** Renders the rows that came into view. The others stay, as a click ends if its row is replaced during it. */
  renderView() {
    const { scrollTop, clientHeight } = this.container;
    const first = Math.max(0, Math.floor(scrollTop / HEIGHT) - MARGIN);
    const last = Math.min(this.entries.length, Math.ceil((scrollTop + clientHeight) / HEIGHT) + MARGIN);
    const shown = this.entries.slice(first, last);
    const rows = new Map(shown.map((entry, i) => [entry, this.rows.get(entry) ?? this.row(entry, first + i)]));
    for (const [entry, row] of this.rows) if (!rows.has(entry)) row.remove();
    let next = null;
    for (const row of [...rows.values()].reverse()) {
      if (!row.isConnected) this.spacer.insertBefore(row, next);
      next = row;
    }
    this.rows = rows;
    const isRendered = first <= this.position && this.position < last;
    if (isRendered) this.container.setAttribute("aria-activedescendant", rowId(this.position));
    else this.container.removeAttribute("aria-activedescendant");
  }

  row(entry, position) {
    const name = nameOf(entry);
    const details = [
      entry.partLabel,
      entry.error ? "failed" : null,
      finishLabel(entry),
      conflictsLabel(entry),
      folderOf(entry).slice(this.folder.length, -1),
    ];
    return element(
      "div",
      {
        class: "document",
        id: rowId(position),
        role: "option",
        "aria-selected": String(entry === this.selected),
        "aria-setsize": this.entries.length,
        "aria-posinset": position + 1,
        "--top": `${position * HEIGHT}px`,
        title: entry.source ?? name,
        click: () => this.onSelect(entry),
      },
      this.state(entry),
      element("span", { class: "name", dir: "auto" }, name),
      sureness(entry.error ? null : entry.least),
      element("span", { class: "about" }, details.filter(Boolean).join(" · ")),
    );
  }

  state(entry) {
    const [symbol, label] = this.corrections.isDone(entry.id)
      ? ["check", "reviewed"]
      : this.corrections.has(entry.id)
        ? ["half", "partly reviewed"]
        : entry.error
          ? ["warning", "failed"]
          : ["circle", "not reviewed"];
    return element("span", { class: `state ${symbol}`, role: "img", "aria-label": label }, icon(symbol));
  }
}

/** Returns a probability as a number whose colour says how sure the model was; nothing if it is not known. */
export function sureness(probability) {
  const level = levelOf(probability);
  return level && element("span", { class: "sureness", "--level": level.hue }, percent(probability));
}

/** Returns the file name of a document. */
export function nameOf(entry) {
  return (entry.source ?? "(no name)").slice(folderOf(entry).length);
}

/** Returns the folder of a document, with the slash at its end. */
function folderOf({ source }) {
  return source ? source.slice(0, source.lastIndexOf("/", source.length - 2) + 1) : "";
}

/** Returns the folder that all documents with a name are in. */
function commonFolder(documents) {
  const [first = "", ...others] = documents.filter(({ source }) => source).map(folderOf);
  let common = first;
  while (!others.every((folder) => folder.startsWith(common))) common = common.replace(/[^/]*\/$/, "");
  return common;
}

function rowId(position) {
  return `document-${position}`;
}

function finishLabel(entry) {
  return entry.finish && entry.finish !== "stop" ? entry.finish : null;
}

function conflictsLabel(entry) {
  return entry.conflicts ? `${entry.conflicts} in conflict` : null;
}
