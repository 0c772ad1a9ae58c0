// The data of the page: compressed blocks in script elements that are no scripts, each read when it is needed.

import { parseJson } from "./json.js";

/** Resolves when the whole file is there; the first view does not wait for it. */
const loaded = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve();
  else document.addEventListener("DOMContentLoaded", resolve, { once: true });
});

const blocks = new Map();

/** Returns what a block holds. */
export function readBlock(id) {
  if (!blocks.has(id)) blocks.set(id, decompress(id));
  return blocks.get(id);
}

async function decompress(id) {
  const bytes = Uint8Array.from(atob(await encoded(id)), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return parseJson(await new Response(stream).text());
}

/** Returns the URL of an image. */
export async function imageUrl(id) {
  return `data:image/webp;base64,${await encoded(id)}`;
}

async function encoded(id) {
  // While the file is being read, the text of its last element may be incomplete.
  if (!document.getElementById(id)?.nextElementSibling) await loaded;
  return document.getElementById(id).textContent;
}

/** Returns text, record and places of a document, given its entry of the index. */
export async function readDetail(entry) {
  const [block, position] = entry.block;
  return (await readBlock(`documents-${block}`))[position];
}
