// The record: a row for each value, with the model's confidence and the person's marks.

import { byId, element, icon, reveal } from "./dom.js";
import { fieldHue } from "./colours.js";
import { correctedRecord } from "./corrections.js";
import { Editor, kindOf } from "./editor.js";
import { sureness } from "./document-list.js";
import { isContainer } from "./json.js";
import { rowsOf, shown } from "./record.js";
import { valueDetails } from "./value-details.js";

export class RecordView {
  /**
   * @param index of the file
   * @param actions select(pointer), note(pointer, note), nextOccurrence()
   */
  constructor(index, actions) {
    this.body = byId("record-body");
    this.index = index;
    this.actions = actions;
    this.selected = null;
    this.editor = null;
    this.rows = [];
    this.elements = new Map();
  }

  /** Shows the record of a document with the notes on its fields. */
  show(entry, detail, fields) {
    const isSame = detail === this.detail;
    Object.assign(this, { entry, detail, fields });
    if (!isSame) this.editor = null;
    const isReplaced = (pointer) => fields[pointer]?.mark === "corrected";
    this.rows = rowsOf(correctedRecord(detail, fields), isReplaced);
    this.elements = new Map(this.rows.map((row) => [row.pointer, this.row(row)]));
    this.body.replaceChildren(...this.elements.values());
    if (!isSame) this.body.scrollTop = 0;
  }

  /** Shows other notes on some fields. */
  mark(fields, pointers) {
    this.fields = fields;
    pointers.forEach((pointer) => this.refresh(pointer));
  }

  /** The rows that are values, in order. */
  get values() {
    return this.rows.filter((row) => !row.isHeading);
  }

  find(pointer) {
    return this.rows.find((row) => row.pointer === pointer);
  }

  select(pointer) {
    const changed = [this.selected, pointer];
    if (pointer !== this.selected) this.editor = null;
    this.selected = pointer;
    changed.forEach((each) => this.refresh(each));
    if (this.elements.has(pointer)) reveal(this.elements.get(pointer), this.body);
  }

  refresh(pointer) {
    const row = this.find(pointer);
    if (!row) return;
    const node = this.row(row);
    this.elements.get(pointer).replaceWith(node);
    this.elements.set(pointer, node);
  }

  /** Opens the form for another value of the selected field. */
  edit() {
    const row = this.find(this.selected);
    if (!row) return;
    const { pointer, value } = row;
    this.editor = new Editor(
      value ?? null,
      this.kindFor(row),
      (value, span) => this.actions.note(pointer, { mark: "corrected", value, span }),
      () => this.closeEditor(),
    );
    this.refresh(pointer);
    this.editor.open();
  }

  /** Returns the kind of value to offer: that of the value, or if it is null, that of the field elsewhere. */
  kindFor({ field, value }) {
    if (value === undefined) return "JSON";
    return value === null ? (this.index.fields[this.index.numbers.get(field)]?.kind ?? "text") : kindOf(value);
  }

  closeEditor() {
    this.editor = null;
    this.refresh(this.selected);
    this.elements.get(this.selected)?.querySelector("button").focus();
  }

  row(row) {
    const isSelected = row.pointer === this.selected;
    const note = this.fields[row.pointer];
    const level = Math.min(row.depth, 5);
    return element(
      "li",
      { class: `row level-${level} ${isSelected ? "selected" : ""} ${note?.mark ?? ""} ${row.isHeading ? "heading" : ""}` },
      this.button(row, isSelected),
      this.marks(row, note),
      isSelected && this.details(row, note),
    );
  }

  button(row, isSelected) {
    const { pointer, value } = row;
    const isCorrected = this.fields[pointer]?.mark === "corrected";
    const confidence = this.detail.confidence[pointer]?.probability;
    return element(
      "button",
      { class: "field", "aria-current": isSelected && "true", "data-pointer": pointer, click: () => this.actions.select(pointer) },
      element(
        "span",
        { class: "label" },
        this.detail.spans[pointer] && element("span", { class: "swatch", "--field": this.hue(row) }),
        row.label,
        isCorrected && element("span", { class: "tag" }, "corrected"),
        this.detail.conflicts[pointer] && element("span", { class: "tag conflict" }, "conflict"),
      ),
      row.isHeading
        ? element("span", { class: "size" }, Array.isArray(value) ? String(value.length) : "")
        : element("span", { class: `value ${value === null || isContainer(value) ? "bare" : ""}`, dir: "auto" }, shown(value)),
      !isCorrected && sureness(confidence),
    );
  }

  hue({ field }) {
    return fieldHue(this.index.numbers.get(field) ?? 0);
  }

  marks({ pointer, value, isHeading }, note) {
    const toggle = (mark) => () => this.actions.note(pointer, note?.mark === mark ? null : { mark });
    const button = (symbol, label, isPressed, click) =>
      element("button", { class: `mark ${symbol}`, title: label, "aria-label": label, "aria-pressed": isPressed, click }, icon(symbol));
    const edit = button("edit", "Edit (e)", null, () => (this.actions.select(pointer), this.edit()));
    if (isHeading || value === undefined) return element("span", { class: "marks" }, edit);
    return element(
      "span",
      { class: "marks" },
      button("check", "Right (y)", String(note?.mark === "right"), toggle("right")),
      button("cross", "Wrong (x)", String(note?.mark === "wrong"), toggle("wrong")),
      edit,
    );
  }

  details(row, note) {
    const content = this.editor?.element ?? valueDetails(row, note, this.detail, this.actions);
    return content && element("div", { class: "details" }, content);
  }
}
