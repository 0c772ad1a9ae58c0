// What is shown of the selected value: other values that it may have, and why.

import { element, percent } from "./dom.js";
import { parseJson, toJson, valueAt } from "./json.js";
import { shown } from "./record.js";

/** Share of probability that a constraint takes away from which on it is worth a sentence. */
const REMOVED = 0.05;

/**
 * Returns elements about a value, or null if there is nothing to say.
 *
 * @param row of the value
 * @param note of the person on it, if any
 * @param detail of the document
 * @param actions note(pointer, note), nextOccurrence()
 */
export function valueDetails({ pointer }, note, detail, actions) {
  const take = (value) => actions.note(pointer, { mark: "corrected", value });
  const { probability, removed = 0, alternatives = {} } = detail.confidence[pointer] ?? {};
  const parts = [
    note && noteOnValue(note, valueAt(detail.record, pointer), () => actions.note(pointer, null)),
    conflicting(detail.conflicts[pointer], take),
    alternatively(alternatives, take),
    probability !== undefined && removed >= REMOVED && ruledOut(removed),
    places(detail.occurrences[pointer], () => actions.nextOccurrence()),
  ].filter(Boolean);
  return parts.length > 0 ? parts : null;
}

function noteOnValue({ mark }, original, undo) {
  const isReplaced = mark === "corrected" && original !== undefined;
  const text = isReplaced ? `The model wrote ${toJson(original)}.` : `Marked as ${mark}.`;
  return element("p", {}, text, " ", element("button", { class: "link", click: undo }, "Undo (u)"));
}

function conflicting(values, take) {
  if (!values) return null;
  return element(
    "div",
    {},
    element("p", {}, "Other parts of the document say"),
    values.map((value) => offer(value, null, take)),
  );
}

/** Returns the alternatives of an enum or the like, the likeliest first. */
function alternatively(alternatives, take) {
  const likeliest = Object.entries(alternatives).sort(([, one], [, other]) => other - one);
  if (likeliest.length < 2) return null;
  return element("div", {}, likeliest.map(([json, share]) => offer(alternativeOf(json), share, take)));
}

/** Returns the value of an alternative, or undefined for "present", which is no JSON: any value but null. */
function alternativeOf(json) {
  try {
    return parseJson(json);
  } catch {
    return undefined;
  }
}

/** Returns a button that takes a value in place of the model's. */
function offer(value, share, take) {
  const isKnown = value !== undefined;
  return element(
    "button",
    { class: "offer", disabled: !isKnown, "--share": share ?? 0, title: "Take this value", click: () => take(value) },
    element("span", { class: typeof value !== "string" && "bare", dir: "auto" }, isKnown ? shown(value) : "a value"),
    share !== null && element("span", { class: "share" }, percent(share)),
  );
}

function ruledOut(removed) {
  return element(
    "p",
    {},
    `The constraint ruled out up to ${percent(removed)} of the probability: the model wanted something else.`,
  );
}

function places(all, next) {
  if (!all || all.length < 2) return null;
  const button = element("button", { class: "link", click: next }, "Next (o)");
  return element("p", {}, `The passage stands in ${all.length} places. `, button);
}
