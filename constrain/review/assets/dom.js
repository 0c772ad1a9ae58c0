// Elements of the page. Data becomes text nodes and attributes only, never markup.

/**
 * Returns a new element.
 *
 * Attributes whose value is a function are listeners; those that are null or false are left out. Names with two hyphens
 * are custom properties, which become no style attribute: the content security policy of the page forbids these.
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Returns one of the symbols of the page. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Returns a range that knows where it is on the screen. */
export function liveRange({ startContainer, startOffset, endContainer, endOffset }) {
  const range = document.createRange();
  range.setStart(startContainer, startOffset);
  range.setEnd(endContainer, endOffset);
  return range;
}

/** Scrolls an element or a range to the middle of a scrolling element, unless it is in view. */
export function reveal(target, scroller) {
  const view = scroller.getBoundingClientRect();
  const { top, bottom } = target.getBoundingClientRect();
  if (top < view.top || bottom > view.bottom) scroller.scrollTop += (top + bottom - view.top - view.bottom) / 2;
}

/** Says something to screen readers. */
export function announce(text) {
  byId("announcer").textContent = text;
}

export function percent(probability) {
  const rounded = Math.round(100 * probability);
  // 99.7% is not certain, and 0.2% is not impossible.
  if (rounded === 100 && probability < 1) return ">99%";
  if (rounded === 0 && probability > 0) return "<1%";
  return `${rounded}%`;
}

export function count(number, singular, plural = `${singular}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;
}
