// JSON as it is: integers of any size, and JSON pointers.

const INTEGER = /^-?[1-9]\d{15,}$/;
const STRING_OR_NUMBER = /"(?:\\.|[^"\\])*"|-?\d[\d.eE+-]*/g;

/** Parses JSON in which {"$integer": "..."} stands for an integer that a JavaScript number cannot hold. */
export function parseJson(text) {
  return JSON.parse(text, (_, value) => (INTEGER.test(value?.$integer) ? BigInt(value.$integer) : value));
}

/** Parses JSON as a person typed it, in which integers of any size are as they are. */
export function parseTyped(text) {
  const exact = (token) => (INTEGER.test(token) ? `{"$integer": "${token}"}` : token);
  return parseJson(text.replaceAll(STRING_OR_NUMBER, exact));
}

/** Returns the JSON text of a value, with large integers as they are. */
export function toJson(value) {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(toJson).join(", ")}]`;
  if (!isContainer(value)) return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${toJson(each)}`).join(", ")}}`;
}

export function isContainer(value) {
  return typeof value === "object" && value !== null;
}

/** Parses a number as it was typed; undefined if it is none. */
export function parseNumber(text) {
  const trimmed = text.trim();
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(trimmed)) return undefined;
  const number = Number(trimmed);
  return /^-?\d+$/.test(trimmed) && !Number.isSafeInteger(number) ? BigInt(trimmed) : number;
}

/** Returns the names and indices of a JSON pointer. */
export function steps(pointer) {
  return pointer.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Returns the pointer to a member of what a pointer leads to. */
export function join(pointer, step) {
  return `${pointer}/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** Returns what a pointer leads to; undefined if it leads nowhere. */
export function valueAt(root, pointer) {
  return steps(pointer).reduce((value, step) => (isContainer(value) ? value[step] : undefined), root);
}

/** Returns a copy of a value in which the pointer leads to a new value; the same value if it leads nowhere. */
export function replaced(root, pointer, value) {
  return replacedAt(root, steps(pointer), value);
}

function replacedAt(root, [step, ...rest], value) {
  if (step === undefined) return value;
  if (!isContainer(root) || !Object.hasOwn(root, step)) return root;
  const copy = Array.isArray(root) ? [...root] : { ...root };
  copy[step] = replacedAt(root[step], rest, value);
  return copy;
}
