// Records as rows: one for each value, and headings for objects and lists.

import { isContainer, join, toJson } from "./json.js";

/**
 * Returns the rows of a record: pointer, label, depth, value, whether it is a heading, and the field, which is the
 * pointer with a star for each index.
 *
 * Values that a person has replaced are one row each, whatever they are.
 */
export function rowsOf(record, isReplaced = () => false) {
  const rows = [];
  const visit = (value, pointer, field, label, depth) => {
    const isHeading = isContainer(value) && Object.keys(value).length > 0 && !isReplaced(pointer);
    if (label !== null || !isHeading) rows.push({ pointer, field, label: label ?? "record", depth, value, isHeading });
    if (!isHeading) return;
    const inner = label === null ? 0 : depth + 1;
    for (const [name, member] of Object.entries(value)) {
      const [step, shown] = Array.isArray(value) ? ["*", String(Number(name) + 1)] : [name, name];
      visit(member, join(pointer, name), join(field, step), shown, inner);
    }
  };
  visit(record, "", "", null, 0);
  return rows;
}

// Returns a field as people read it: /lines/*/name as "lines › name".
export function fieldLabel(field) {
  const names = field.split("/").slice(1).filter((name) => name !== "*");
  return names.map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~")).join(" › ") || "record";
}

/** Returns a value as people read it: texts without quotation marks. */
export function shown(value) {
  if (value === undefined) return "no record";
  return typeof value === "string" ? value : toJson(value);
}
