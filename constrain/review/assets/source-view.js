// The source of a record: its text, or for a PDF its pages, with highlights.

import { announce, byId, element, icon, liveRange, reveal } from "./dom.js";
import { fieldHue, levelOf } from "./colours.js";
import { hasColumns, sectionsOf } from "./highlight.js";
import { imageUrl } from "./data.js";
import { TextView } from "./text-view.js";

export class SourceView {
  /** @param onSelect called with the pointer of a field whose highlight was clicked */
  constructor(fieldIndex, onSelect) {
    this.body = byId("source-body");
    this.fieldIndex = fieldIndex;
    this.onSelect = onSelect;
    this.showsImages = true;
    this.selected = null;
  }

  /**
   * @param entry of the index
   * @param detail text, pages, boxes and confidence of the document
   * @param spans of the values, by pointer
   */
  show(entry, detail, spans) {
    const isSame = detail === this.detail;
    Object.assign(this, { entry, detail, spans });
    this.render();
    if (!isSame) this.body.scrollTop = 0;
  }

  get hasImages() {
    return Object.keys(this.entry?.images ?? {}).length > 0;
  }

  render() {
    const { text, pages } = this.detail;
    this.boxes = [];
    this.view = new TextView(text ?? "", (mark, pointer) => this.style(mark, pointer), (names) => this.cycle(names));
    this.body.classList.toggle("columns", hasColumns(text ?? ""));
    this.body.classList.toggle("shows-images", this.showsImages && this.hasImages);
    this.body.replaceChildren(
      ...this.notes(),
      ...(text === null ? [] : sectionsOf(text, pages).map((section) => this.section(section))),
    );
    this.emphasise();
  }

  notes() {
    const { error } = this.entry;
    const left = this.entry.imagesLeftOut && "Some pages are shown as text, to keep the size of this file within its limit.";
    return [
      error && note("error", "warning", element("strong", {}, error.type), `: ${error.message}`),
      this.detail.note && note("missing", "info", this.detail.note),
      left && note("missing", "info", left),
      this.detail.text === "" && note("missing", "info", "The text is empty."),
    ].filter(Boolean);
  }

  section(section) {
    const { page } = section;
    const image = page && this.showsImages ? this.entry.images?.[page.number] : undefined;
    const content = image === undefined ? this.textSection(section) : this.imageSection(page, image);
    const label = page && element("h3", { class: "page-label" }, `Page ${page.number}`);
    return element("section", { class: image === undefined ? "text-page" : "image-page" }, label, content);
  }

  textSection(section) {
    return element("div", { class: "text" }, this.view.section(section, this.spans));
  }

  imageSection(page, id) {
    const name = `Page ${page.number} of ${this.entry.source}`;
    const image = element("img", { alt: name, width: Math.round(page.width), height: Math.round(page.height) });
    imageUrl(`image-${id}`).then((url) => (image.src = url));
    const boxes = Object.entries(this.detail.boxes).flatMap(([pointer, places]) =>
      places.filter(([number]) => number === page.number).map((place) => this.box(pointer, place)),
    );
    return element("figure", {}, image, boxes);
  }

  box(pointer, [, left, top, right, bottom]) {
    const box = element("button", { class: "box", tabindex: -1, click: () => this.onSelect(pointer) });
    box.setAttribute("aria-label", pointer);
    const place = { left, top, width: right - left, height: bottom - top };
    for (const [side, share] of Object.entries(place)) box.style[side] = `${100 * share}%`;
    this.style(box, pointer);
    this.boxes.push({ box, pointer });
    return box;
  }

  /** Gives a highlight the colours of a field and of its confidence. */
  style(node, pointer) {
    const level = levelOf(this.detail.confidence[pointer]?.probability);
    node.style.setProperty("--field", fieldHue(this.fieldIndex(pointer)));
    node.style.setProperty("--level", level?.hue ?? 0);
    node.classList.toggle("unknown", level === null);
  }

  /** Selects the field of a highlight; of several, the one after the selected one. */
  cycle(names) {
    if (!getSelection().isCollapsed) return; // a passage is being selected
    this.onSelect(names[(names.indexOf(this.selected) + 1) % names.length]);
  }

  /** Emphasises a field and scrolls to it; null takes the emphasis away. */
  select(pointer) {
    this.selected = pointer;
    this.place = 0;
    this.paint("current-occurrence", []);
    const [first] = this.emphasise();
    if (first) reveal(first, this.body);
  }

  emphasise() {
    const marks = this.view.select(this.selected);
    for (const { box, pointer } of this.boxes) box.classList.toggle("selected", pointer === this.selected);
    this.paint("occurrence", this.otherPlaces());
    return [...marks, ...this.boxes.filter(({ pointer }) => pointer === this.selected).map(({ box }) => box)];
  }

  /** Returns where the passage of the selected field stands elsewhere in the text. */
  otherPlaces() {
    const [start] = this.spans[this.selected] ?? [];
    return (this.detail.occurrences[this.selected] ?? []).filter(([from]) => from !== start);
  }

  /** Highlights places that are no elements of their own. */
  paint(name, places) {
    if (!CSS.highlights) return;
    const ranges = places.map(([start, end]) => this.view.range(start, end)).filter(Boolean);
    CSS.highlights.set(name, new Highlight(...ranges));
  }

  /** Scrolls to the next of the places at which the passage of the selected field stands. */
  nextOccurrence() {
    const places = this.detail?.occurrences[this.selected] ?? [];
    this.place = (this.place + 1) % places.length;
    const range = places.length > 1 && this.view.range(...places[this.place]);
    if (!range) return;
    reveal(liveRange(range), this.body);
    this.paint("current-occurrence", [places[this.place]]);
    announce(`Place ${this.place + 1} of ${places.length}`);
  }

  toggleImages() {
    if (!this.hasImages) return;
    this.showsImages = !this.showsImages;
    this.render();
    this.select(this.selected);
  }
}

function note(kind, symbol, ...content) {
  return element("p", { class: `note ${kind}` }, icon(symbol), element("span", { dir: "auto" }, ...content));
}
