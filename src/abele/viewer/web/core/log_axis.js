// Logarithmic axes in two directions: where values lie, and their grid of powers of ten.

import { short } from "abele/core/format.js";

const MOST_MARKS = 7;
const GRID = 0.75;

/** The powers of ten around some values: exponents, the second above the first; what is not positive and finite has no place. */
export function decades(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!(value > 0) || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (!(high > 0)) return [0, 1];
  const first = Math.floor(Math.log10(low));
  return [first, Math.max(Math.ceil(Math.log10(high)), first + 1)];
}

function mark(exponent) {
  return Math.abs(exponent) > 2 ? short(10 ** exponent) : String(10 ** exponent);
}

/**
 * Where values lie in a box.
 * @param {[number, number]} across @param {[number, number]} up  exponents, as `decades` gives them
 * @param {{left: number, top: number, width: number, height: number}} box
 */
export function logAxes([x0, x1], [y0, y1], { left, top, width, height }) {
  const x = (value) => left + ((Math.log10(value) - x0) / (x1 - x0)) * width;
  const y = (value) => top + (1 - (Math.log10(value) - y0) / (y1 - y0)) * height;
  const exponents = (low, high) => Array.from({ length: high - low + 1 }, (_, i) => low + i);
  return {
    x, y, ends: [10 ** x0, 10 ** x1],
    /** The grid with its numbers, and what is drawn across. */
    draw(pen, theme, title) {
      pen.fillStyle = theme.rule;
      for (const d of exponents(x0, x1)) pen.fillRect(x(10 ** d), top, GRID, height);
      for (const d of exponents(y0, y1)) pen.fillRect(left, y(10 ** d), width, GRID);
      pen.font = "11px system-ui, sans-serif";
      pen.textBaseline = "middle";
      pen.fillStyle = theme.dim;
      pen.textAlign = "center";
      for (let d = x0; d <= x1; d += Math.ceil((x1 - x0) / MOST_MARKS)) pen.fillText(mark(d), x(10 ** d), top + height + 10);
      pen.fillText(title, left + width / 2, top + height + 24);
      pen.textAlign = "right";
      for (let d = y0; d <= y1; d += Math.ceil((y1 - y0) / MOST_MARKS)) pen.fillText(mark(d), left - 5, y(10 ** d));
    },
  };
}
