// The page: what is selected, and who is told of it.

import { announce, byId, count } from "./dom.js";
import { Corrections, changedPointers, correctedSpans } from "./corrections.js";
import { DocumentList, nameOf } from "./document-list.js";
import { Filters } from "./filters.js";
import { Keys } from "./keys.js";
import { RecordView } from "./record-view.js";
import { SourceView } from "./source-view.js";
import { applyTheme, toggleTheme } from "./theme.js";
import { download, goldLine } from "./gold.js";
import { fieldLabel } from "./record.js";
import { isContainer, toJson, valueAt } from "./json.js";
import { readBlock, readDetail } from "./data.js";

class Review {
  constructor(index) {
    this.index = index;
    this.entry = null;
    this.detail = null;
    this.fields = {};
    index.numbers = new Map(index.fields.map(({ field }, i) => [field, i]));
    this.corrections = new Corrections(() => this.refresh());
    this.list = new DocumentList(byId("list"), index.documents, this.corrections, (entry) => this.open(entry));
    this.filters = new Filters(byId("filters"), index, this.corrections, (entries) => this.showList(entries));
    this.source = new SourceView((pointer) => this.fieldIndex(pointer), (pointer) => this.select(pointer));
    this.record = new RecordView(index, {
      select: (pointer) => this.select(pointer),
      note: (pointer, note) => this.note(pointer, note),
      nextOccurrence: () => this.source.nextOccurrence(),
    });
    this.keys = new Keys(this.bindings());
    this.listen();
    this.refresh();
    this.filters.apply();
  }

  bindings() {
    return [
      ["j", "next document", () => this.list.step(1)],
      ["k", "previous document", () => this.list.step(-1)],
      ["n", "next value", () => this.stepField(1)],
      ["p", "previous value", () => this.stepField(-1)],
      ["y", "value is right, on to the next", () => this.markRight()],
      ["x", "value is wrong", () => this.note(this.record.selected, { mark: "wrong" })],
      ["e", "edit the value", () => this.record.edit()],
      ["u", "undo the note on the value", () => this.note(this.record.selected, null)],
      ["a", "all other values are right", () => this.markRest()],
      ["o", "next place of the same passage", () => this.source.nextOccurrence()],
      ["v", "view pages as images or text", () => this.toggleImages()],
      ["c", "colours of fields or of confidence", () => this.toggleColours()],
      ["d", "dark or light", toggleTheme],
      ["/", "search", () => byId("search").focus()],
      ["?", "this list", () => this.keys.help()],
      ["Escape", "", () => this.select(null)],
    ];
  }

  listen() {
    const clicks = {
      next: () => this.list.step(1),
      previous: () => this.list.step(-1),
      export: () => this.export(),
      theme: toggleTheme,
      help: () => this.keys.help(),
      "all-right": () => this.markRest(),
      images: () => this.toggleImages(),
      colours: () => this.toggleColours(),
    };
    for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener("click", action);
    byId("source-body").addEventListener("mouseup", () => this.takeSelection());
    addEventListener("beforeunload", (event) => {
      if (!this.corrections.isKept && this.noted.length > 0) event.preventDefault();
    });
  }

  showList(entries) {
    this.list.show(entries);
    const all = this.index.documents.length;
    byId("shown").textContent =
      entries.length === all ? count(all, "document") : `${entries.length.toLocaleString("en")} of ${count(all, "document")}`;
    if (this.entry === null && entries.length > 0) this.open(entries[0]);
    this.showPosition();
  }

  /** Shows a document. */
  async open(entry) {
    this.entry = entry;
    this.list.select(entry);
    this.showPosition();
    const detail = await readDetail(entry);
    if (this.entry !== entry) return; // another was opened meanwhile
    this.detail = detail;
    this.source.selected = this.record.selected = null;
    byId("document-name").textContent = nameOf(entry);
    byId("document-part").textContent = entry.partLabel ?? "";
    byId("images").hidden = Object.keys(entry.images ?? {}).length === 0;
    this.showDetail();
    announce(`${nameOf(entry)} ${entry.partLabel ?? ""}`);
  }

  /** Shows the source and the record, with what is noted on it. */
  showDetail() {
    this.fields = this.corrections.of(this.entry.id);
    this.source.show(this.entry, this.detail, correctedSpans(this.detail, this.fields));
    this.record.show(this.entry, this.detail, this.fields);
    byId("all-right").disabled = this.detail.record === undefined;
  }

  /** Shows changes of what is noted on the record. */
  showNotes() {
    const fields = this.corrections.of(this.entry.id);
    const changed = changedPointers(this.fields, fields);
    const isCorrection = (pointer) => [this.fields, fields].some((each) => each[pointer]?.mark === "corrected");
    if (changed.some(isCorrection)) {
      this.showDetail(); // there may be other rows and highlights
      return;
    }
    this.fields = fields;
    this.record.mark(fields, changed);
  }

  showPosition() {
    const { position, entries } = this.list;
    byId("position").textContent = position === -1 ? "" : `${position + 1} of ${entries.length.toLocaleString("en")}`;
  }

  /** The entries of documents on which something is noted. */
  get noted() {
    return this.index.documents.filter((entry) => this.corrections.has(entry.id));
  }

  /** Shows notes that have changed, here or in another tab. */
  refresh() {
    const { documents } = this.index;
    const done = documents.filter((entry) => this.corrections.isDone(entry.id)).length;
    const failures = documents.filter((entry) => entry.error).length;
    byId("totals").textContent = [
      count(documents.length, "document"),
      failures && count(failures, "failure"),
      `${done.toLocaleString("en")} reviewed`,
    ]
      .filter(Boolean)
      .join(" · ");
    byId("export").disabled = this.noted.length === 0;
    byId("not-kept").hidden = this.corrections.isKept;
    this.list.render();
    if (this.detail && this.detail.id === this.entry.id) this.showNotes();
  }

  fieldIndex(pointer) {
    return this.index.numbers.get(pointer.replace(/\/\d+(?=\/|$)/g, "/*")) ?? this.index.numbers.get(pointer) ?? 0;
  }

  select(pointer) {
    if (!this.detail) return;
    this.record.select(pointer);
    this.source.select(pointer);
    const row = this.record.find(pointer);
    if (row) announce(`${fieldLabel(row.field)}: ${row.value}`);
  }

  stepField(number) {
    const pointers = this.record.values.map((row) => row.pointer);
    const position = pointers.indexOf(this.record.selected);
    const next = position === -1 ? 0 : Math.max(0, Math.min(position + number, pointers.length - 1));
    if (pointers.length > 0) this.select(pointers[next]);
  }

  /** Notes something on a field of the document that is shown. */
  note(pointer, note) {
    const row = this.record.find(pointer);
    if (!row || (row.value === undefined && note?.mark !== "corrected")) return;
    this.record.editor = null;
    this.corrections.set(this.detail, pointer, note?.mark === "corrected" ? this.correction(row, note) : note);
    this.select(pointer);
  }

  /** Returns the note for a new value; if it is the model's after all, that is right. */
  correction(row, { value, span }) {
    const isSame = !isContainer(value) && toJson(value) === toJson(valueAt(this.detail.record, row.pointer));
    if (isSame && !span) return { mark: "right" };
    return { mark: "corrected", value, span: this.spanOf(row, value, span) };
  }

  /** Returns the span of a new value: the passage it was taken from, or the only one that is the same. */
  spanOf({ field }, value, span) {
    const { text } = this.detail;
    if (text === null || typeof value !== "string" || value === "") return undefined;
    if (span && text.slice(...span) === value) return span;
    const start = text.indexOf(value);
    const isUnique = start !== -1 && start === text.lastIndexOf(value);
    const hasSpans = this.index.fields[this.index.numbers.get(field)]?.hasSpans;
    return hasSpans && isUnique ? [start, start + value.length] : undefined;
  }

  markRight() {
    this.note(this.record.selected, { mark: "right" });
    this.stepField(1);
  }

  markRest() {
    if (!this.detail || this.detail.record === undefined) return;
    this.corrections.setRest(this.detail);
    announce("All values are reviewed");
  }

  /** Takes a selected passage as the value that is being edited. */
  takeSelection() {
    const span = this.record.editor && this.source.view.selection();
    if (span) this.record.editor.take(this.detail.text.slice(...span), span);
  }

  toggleImages() {
    this.source.toggleImages();
    byId("images").setAttribute("aria-pressed", String(!this.source.showsImages));
  }

  toggleColours() {
    const { dataset } = byId("review");
    dataset.colours = dataset.colours === "field" ? "confidence" : "field";
    byId("colours").setAttribute("aria-pressed", String(dataset.colours === "confidence"));
  }

  /** Has the browser save a gold file with the documents on which something was noted. */
  async export() {
    const details = await Promise.all(this.noted.map(readDetail));
    const lines = details.map((detail) => goldLine(detail, this.corrections.of(detail.id)));
    download(this.index.goldName, lines.map((line) => `${line}\n`).join(""));
  }
}

applyTheme();
readBlock("index").then((index) => new Review(index));
