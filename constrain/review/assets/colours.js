// Colours of fields, and of how sure the model was.

const HUES = [250, 145, 55, 320, 195, 25, 100, 285, 170, 350, 75, 225];

/** Least probabilities of a confidence, with its name and hue. */
export const LEVELS = [
  { least: 0.9, name: "sure", hue: 150 },
  { least: 0.6, name: "less sure", hue: 80 },
  { least: 0, name: "unsure", hue: 25 },
];

export function fieldHue(index) {
  return HUES[index % HUES.length];
}

/** Returns the level of a probability, or null if that is not known. */
export function levelOf(probability) {
  return probability === null || probability === undefined ? null : LEVELS.find(({ least }) => probability >= least);
}
