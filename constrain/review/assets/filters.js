// Which documents are listed, and in which order.

import { element } from "./dom.js";
import { fieldLabel, rowsOf, shown } from "./record.js";
import { nameOf } from "./document-list.js";
import { readDetail } from "./data.js";

/** How long to wait for another key before searching, in milliseconds. */
const PAUSE = 120;

export class Filters {
  /**
   * @param form the controls, whose names are those used here
   * @param onChange called with the entries to list
   */
  constructor(form, index, corrections, onChange) {
    this.form = form;
    this.index = index;
    this.corrections = corrections;
    this.onChange = onChange;
    this.searchable = new Map();
    const finishes = [...new Set(index.documents.map((entry) => entry.finish).filter(Boolean))].sort();
    addOptions(form.elements.field, index.fields.map(({ field }, i) => [i, fieldLabel(field)]));
    addOptions(form.elements.finish, finishes.map((finish) => [finish, finish]));
    form.addEventListener("input", (event) => this.onInput(event));
    form.addEventListener("reset", () => setTimeout(() => this.apply()));
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  onInput(event) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.apply(), event.target.type === "search" ? PAUSE : 0);
  }

  /** Lists the documents that pass. */
  async apply() {
    const { elements } = this.form;
    elements.value.disabled = elements.field.value === "";
    elements.limit.value = `${elements.confidence.value}%`;
    const values = Object.fromEntries(new FormData(this.form));
    this.form.classList.toggle("is-active", this.isActive(values));
    const entries = this.index.documents.filter((entry) => this.passes(entry, values));
    const found = values.search.trim() ? await this.search(entries, values.search) : entries;
    // Another change may have come while the texts were being read.
    if (values.search === elements.search.value) this.onChange(sorted(found, values));
  }

  isActive({ field, confidence, finish, conflicts }) {
    return field !== "" || confidence !== "100" || finish !== "" || conflicts !== undefined;
  }

  passes(entry, { show, field, value, confidence, finish, conflicts }) {
    const [filled, least] = field === "" ? [1, entry.least] : (entry.fields[field] ?? [0, null]);
    return (
      this.isShown(entry, show) &&
      (field === "" || value === "" || (value === "present") === filled > 0) &&
      (confidence === "100" || (least !== null && 100 * least <= Number(confidence))) &&
      (finish === "" || entry.finish === finish) &&
      (conflicts === undefined || entry.conflicts > 0)
    );
  }

  isShown(entry, show) {
    switch (show) {
      case "records":
        return !entry.error;
      case "failures":
        return Boolean(entry.error);
      case "open":
        return !this.corrections.isDone(entry.id);
      case "reviewed":
        return this.corrections.isDone(entry.id);
      case "changed":
        return Object.values(this.corrections.of(entry.id)).some(({ mark }) => mark !== "right");
      default:
        return true;
    }
  }

  async search(entries, query) {
    const wanted = query.trim().toLowerCase();
    const texts = await Promise.all(entries.map((entry) => this.textOf(entry)));
    return entries.filter((_, i) => texts[i].includes(wanted));
  }

  /** Returns everything about a document that can be found: its name, its values, its text. */
  async textOf(entry) {
    if (!this.searchable.has(entry)) {
      const detail = await readDetail(entry);
      const values = rowsOf(detail.record).map((row) => (row.isHeading ? "" : shown(row.value)));
      const all = [entry.source, entry.error?.message, ...values, detail.text];
      this.searchable.set(entry, all.filter(Boolean).join("\n").toLowerCase());
    }
    return this.searchable.get(entry);
  }
}

function addOptions(select, options) {
  select.append(...options.map(([value, label]) => element("option", { value }, label)));
}

function sorted(entries, { order, field }) {
  if (order === "file") return entries;
  if (order === "name") {
    const { compare } = new Intl.Collator(undefined, { numeric: true });
    return entries.toSorted((one, other) => compare(nameOf(one), nameOf(other)));
  }
  const least = (entry) => (field === "" ? entry.least : entry.fields[field]?.[1]) ?? 2;
  // Failures come last: nothing of them can be unsure.
  return entries.toSorted((one, other) => Boolean(one.error) - Boolean(other.error) || least(one) - least(other));
}
