// What all lanes of a run do together, column by column. Pure functions.

import { sharesOfSpans } from "abele/views/timeline/paint.js";

/** Columns of the coarsest map tile, which is the whole run. */
export const COLUMNS = 512;
const LEAST = 0.002;

/**
 * Mean shares of the lanes of sync groups, stacked.
 * @param {any} answer  to "timeline.lanes", of the whole run
 * @param {any} outline  the answer to "timeline.outline"
 * @returns {{bars: Array<{part: string, column: number, low: number, high: number}>, used: Set<string>}}  low and high: parts of the height
 */
export function stackedShares({ head, arrays }, { lanes, parts, total, made_of: madeOf }) {
  const own = [...lanes.keys()].filter((lane) => lanes[lane].group >= 0 || madeOf === "steps");
  const known = head.mode === "shares";
  const shares = known ? arrays.shares : sharesOfSpans(arrays, [0, total], lanes.length, COLUMNS, parts.length);
  // Shares of the server have what is not known as one part more.
  const each = known ? arrays.shares.shape[2] : parts.length;
  const bars = [];
  const used = new Set();
  for (let column = 0; column < COLUMNS; column += 1) {
    let low = 0;
    for (let p = 0; p < parts.length; p += 1) {
      let share = 0;
      for (const lane of own) share += shares[(lane * COLUMNS + column) * each + p] / 255 / own.length;
      if (share < LEAST) continue;
      used.add(parts[p]);
      bars.push({ part: parts[p], column, low, high: Math.min(low + share, 1) });
      low += share;
    }
  }
  return { bars, used };
}
