// What a person has noted: for a field "right", "wrong", or another value, kept in the browser's storage.

import { parseJson, replaced, steps, toJson } from "./json.js";
import { rowsOf } from "./record.js";

const PREFIX = "constrain-review:";

/**
 * The notes on all records, by identity of the record, under which they are found again in any page that has it. Those on one are {fields, isDone}: `fields` has by JSON pointer {mark: "right"},
 * {mark: "wrong"}, or {mark: "corrected", value, span}, where the span, of the value in the text, may be missing;
 * `isDone` says that every value of the record has a note.
 */
export class Corrections {
  constructor(onChange) {
    this.onChange = onChange;
    this.notes = new Map();
    this.isKept = true;
    this.restore();
    // Notes of another tab.
    addEventListener("storage", (event) => {
      if (event.key !== null && !event.key.startsWith(PREFIX)) return;
      this.restore();
      onChange();
    });
  }

  restore() {
    this.notes.clear();
    try {
      for (const key of Object.keys(localStorage).filter((key) => key.startsWith(PREFIX))) {
        this.notes.set(key.slice(PREFIX.length), parseJson(localStorage.getItem(key)));
      }
    } catch {
      this.isKept = false;
    }
  }

  /** Returns the notes on the fields of a document, by pointer. */
  of(id) {
    return this.notes.get(id)?.fields ?? {};
  }

  isDone(id) {
    return this.notes.get(id)?.isDone ?? false;
  }

  has(id) {
    return this.notes.has(id);
  }

  /** Notes something on a field, or with null takes the note back. */
  set(detail, pointer, note) {
    const { [pointer]: _, ...others } = this.of(detail.id);
    // A new value of a list or an object replaces what was noted inside of it.
    const kept = Object.entries(others).filter(([each]) => note?.value === undefined || !each.startsWith(`${pointer}/`));
    this.save(detail, { ...Object.fromEntries(kept), ...(note && { [pointer]: note }) });
  }

  /** Marks all values that have no note as right. */
  setRest(detail) {
    const fields = this.of(detail.id);
    const right = valuePointers(detail, fields).map((pointer) => [pointer, { mark: "right" }]);
    this.save(detail, { ...Object.fromEntries(right), ...fields });
  }

  save(detail, fields) {
    const isDone = valuePointers(detail, fields).every((pointer) => pointer in fields);
    if (Object.keys(fields).length > 0) this.notes.set(detail.id, { fields, isDone });
    else this.notes.delete(detail.id);
    try {
      const key = PREFIX + detail.id;
      if (this.notes.has(detail.id)) localStorage.setItem(key, storable(this.notes.get(detail.id)));
      else localStorage.removeItem(key);
    } catch {
      this.isKept = false;
    }
    this.onChange();
  }
}

/** Returns the pointers of notes that differ between two states of a document's notes. */
export function changedPointers(before, after) {
  const pointers = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...pointers].filter((pointer) => before[pointer] !== after[pointer]);
}

/** Returns JSON that `parseJson` reads as the same value. */
function storable(value) {
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? { $integer: String(each) } : each));
}

/** Returns the pointers of the values that a person judges one by one. */
export function valuePointers(detail, fields) {
  const rows = rowsOf(correctedRecord(detail, fields), (pointer) => fields[pointer]?.mark === "corrected");
  return rows.filter((row) => !row.isHeading).map((row) => row.pointer);
}

/** Returns the record with the values of notes that have one of these marks, null where a note has none. */
export function correctedRecord(detail, fields, marks = ["corrected"]) {
  const noted = Object.entries(fields).filter(([, note]) => marks.includes(note.mark));
  // Lists and objects come before what is inside of them.
  noted.sort(([one], [other]) => steps(one).length - steps(other).length);
  return noted.reduce((record, [pointer, note]) => replaced(record, pointer, note.value ?? null), detail.record);
}

/** Returns the spans of the corrected record: those of the model's values, and those of the person's. */
export function correctedSpans(detail, fields) {
  const kept = Object.entries(detail.spans).filter(([pointer]) => !isInsideCorrected(pointer, fields));
  const added = Object.entries(fields).filter(([, note]) => note.span).map(([pointer, note]) => [pointer, note.span]);
  return Object.fromEntries([...kept, ...added]);
}

function isInsideCorrected(pointer, fields) {
  return Object.keys(fields).some(
    (each) => fields[each].mark === "corrected" && (pointer === each || pointer.startsWith(`${each}/`)),
  );
}
