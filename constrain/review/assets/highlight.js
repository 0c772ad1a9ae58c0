// Texts in pieces: where highlights begin and end, and where sections do.

/** Returns the sections of a text, {start, end, page}: its pages with what stands between them, or all of it. */
export function sectionsOf(text, pages) {
  if (pages.length === 0) return [{ start: 0, end: text.length, page: null }];
  const starts = [0, ...pages.slice(1).map((page) => page.start), text.length];
  return pages.map((page, i) => ({ start: starts[i], end: starts[i + 1], page }));
}

/**
 * Divides a range of a text where spans begin and end.
 *
 * @param spans [start, end] by name
 * @returns {start, end, names} of each piece, in order; the names of the spans that cover it, the shortest first
 */
export function pieces(start, end, spans) {
  const inside = Object.entries(spans).filter(([, [from, to]]) => from < to && from < end && start < to);
  inside.sort(([, one], [, other]) => one[1] - one[0] - (other[1] - other[0]));
  const borders = inside.flatMap(([, span]) => span).filter((border) => start < border && border < end);
  const points = [...new Set([start, ...borders, end])].sort((one, other) => one - other);
  return points.slice(0, -1).map((from, i) => ({
    start: from,
    end: points[i + 1],
    names: inside.filter(([, span]) => span[0] <= from && points[i + 1] <= span[1]).map(([name]) => name),
  }));
}

/** Whether a text has columns that only a font with characters of one width shows. */
export function hasColumns(text) {
  return (text.match(/\S {3,}\S/g) ?? []).length >= 3;
}
