// A section of the source as text, with highlights.

import { element } from "./dom.js";
import { pieces } from "./highlight.js";

/**
 * Text nodes with their places in the text of the document, and the highlights among them.
 *
 * Highlights have no space or border at their sides, so that they do not change how letters are joined.
 */
export class TextView {
  constructor(text, style, onClick) {
    this.text = text;
    this.style = style;
    this.onClick = onClick;
    this.nodes = [];
    this.marks = [];
    this.selected = [];
  }

  /** Returns the elements of a section, and remembers where they are. */
  section({ start, end }, spans) {
    return pieces(start, end, spans).map((piece) => {
      const node = document.createTextNode(this.text.slice(piece.start, piece.end));
      this.nodes.push({ node, start: piece.start, end: piece.end });
      return piece.names.length === 0 ? node : this.mark(node, piece.names);
    });
  }

  mark(node, names) {
    const mark = element("mark", { click: () => this.onClick(names) }, node);
    this.marks.push({ mark, names });
    this.style(mark, names[0]);
    return mark;
  }

  /** Emphasises the highlights of a field, and returns them. */
  select(pointer) {
    for (const { mark, names } of this.selected) {
      mark.classList.remove("selected");
      this.style(mark, names[0]);
    }
    this.selected = this.marks.filter(({ names }) => names.includes(pointer));
    for (const { mark } of this.selected) {
      mark.classList.add("selected");
      this.style(mark, pointer);
    }
    return this.selected.map(({ mark }) => mark);
  }

  /** Returns the range of the page that shows the characters from `start` to `end`, or null if none does. */
  range(start, end) {
    const first = this.nodes.find((each) => start < each.end);
    const last = this.nodes.findLast((each) => each.start < end);
    if (!first || !last || start >= end) return null;
    return new StaticRange({
      startContainer: first.node,
      startOffset: Math.max(0, start - first.start),
      endContainer: last.node,
      endOffset: Math.min(last.end, end) - last.start,
    });
  }

  /** Returns the characters that the person has selected, as [start, end], or null. */
  selection() {
    const selection = getSelection();
    if (selection.isCollapsed) return null;
    const range = selection.getRangeAt(0);
    const inside = this.nodes.filter(({ node }) => range.intersectsNode(node));
    if (inside.length === 0) return null;
    const [first, last] = [inside[0], inside.at(-1)];
    const start = first.start + (range.startContainer === first.node ? range.startOffset : 0);
    const end = range.endContainer === last.node ? last.start + range.endOffset : last.end;
    return trimmed(this.text, start, end);
  }
}

function trimmed(text, start, end) {
  const selected = text.slice(start, end);
  const from = start + selected.length - selected.trimStart().length;
  const to = end - selected.length + selected.trimEnd().length;
  return from < to ? [from, to] : null;
}
