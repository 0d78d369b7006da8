// Names on bars, and what is said where there are too many.

import { fitted } from "abele/core/format.js";

const WIDE = 2600;

/** A font of the page's, as large as the rest of it is on this screen. */
export function font(size, weight = 400) {
  return `${weight} ${size * (globalThis.innerWidth >= WIDE ? 1.25 : 1)}px system-ui, sans-serif`;
}

/** True for the map tile that writes the name of a bar: the one in which it is first seen. */
export function isFirst(tile, start, low) {
  const seen = Math.max(start, low);
  return seen >= tile.low && seen < tile.high;
}

/** Write names on bars: [text, left, right, middle] each. */
export function write(context, labels, theme) {
  context.font = font(11);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = theme.dark ? "#0b0e12" : "#ffffff";
  for (const [name, a, b, y] of labels) context.fillText(fitted(context, name, b - a - 8), a + 4, y);
}

/** A line where there is too much to unfold. */
export function hint(context, theme, x, y) {
  context.font = font(12);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = theme.dim;
  context.fillText("more executions than can be told apart here: zoom in", x, y);
  context.textAlign = "left";
}
