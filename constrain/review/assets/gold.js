// The export: a line for each document on which something was noted.

import { correctedRecord, correctedSpans } from "./corrections.js";
import { element } from "./dom.js";
import { toJson } from "./json.js";

/**
 * Returns the line of a document in a gold file: key, source and part, the corrected record, its spans in code points,
 * and the mark of each field that has one. Values that are marked as wrong and have no better one are null.
 */
export function goldLine(detail, fields) {
  const wrong = Object.keys(fields).filter((pointer) => fields[pointer].mark === "wrong");
  const spans = Object.entries(correctedSpans(detail, fields)).filter(([pointer]) => !wrong.includes(pointer));
  return toJson({
    key: detail.key,
    source: detail.source,
    ...(detail.part && { part: detail.part }),
    record: correctedRecord(detail, fields, ["corrected", "wrong"]) ?? null,
    ...(spans.length > 0 && {
      spans: Object.fromEntries(spans.map(([pointer, span]) => [pointer, inCodePoints(detail.text, span)])),
    }),
    marks: Object.fromEntries(Object.entries(fields).map(([pointer, note]) => [pointer, note.mark])),
  });
}

function inCodePoints(text, [start, end]) {
  const before = [...text.slice(0, start)].length;
  return [before, before + [...text.slice(start, end)].length];
}

/** Has the browser save a text as a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url));
}
