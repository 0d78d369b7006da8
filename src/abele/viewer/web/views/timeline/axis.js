// An axis of time: its marks in cycles, or in seconds to as many digits as the window needs.

import { count, marks } from "abele/core/format.js";
import { font } from "abele/views/timeline/labels.js";

const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

/**
 * Marks of a window of time.
 * @param {number} low @param {number} high  the window, in units of which `seconds` takes one; 0 for cycles that stay cycles
 * @param {number} width  pixels
 * @param {number} seconds
 * @returns {Array<{at: number, text: string}>}
 */
export function timeMarks(low, high, width, seconds = 0) {
  const most = Math.max(Math.floor(width / 110), 1);
  if (!seconds) {
    const { marks: found, step } = marks(low, high, most);
    return found.map((at) => ({ at, text: at === 0 ? "0" : step >= 1 ? count(at) : at.toFixed(Math.ceil(-Math.log10(step))) }));
  }
  const { step, marks: found } = marks(low * seconds, high * seconds, most);
  const show = timeText(step, Math.max(Math.abs(low), Math.abs(high)) * seconds);
  return found.map((at) => ({ at: at / seconds, text: show(Object.is(at, -0) ? 0 : at) }));
}

/** How times up to `largest` are written so that those `step` apart differ. */
export function timeText(step, largest) {
  const [size, unit] = UNITS.find(([limit]) => largest >= limit * 0.9995) ?? UNITS[3];
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(step / size) - 1e-9), 0), 12);
  return (at) => (at === 0 ? "0" : `${(at / size).toFixed(digits)} ${unit}`);
}

/** Draw marks, and faint lines down from them. */
export function drawAxis(context, { low, high, left, width, height, theme, seconds = 0, top = 20 }) {
  context.font = font(12);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.lineWidth = 1;
  for (const { at, text } of timeMarks(low, high, width, seconds)) {
    const x = Math.round(left + ((at - low) / (high - low)) * width) + 0.5;
    context.strokeStyle = theme.rule;
    context.beginPath();
    context.moveTo(x, top - 5);
    context.lineTo(x, height);
    context.stroke();
    context.fillStyle = theme.dim;
    const room = left + width - x;
    const long = context.measureText(text).width + 4;
    if (room > long) context.fillText(text, x + 4, top / 2);
  }
}
