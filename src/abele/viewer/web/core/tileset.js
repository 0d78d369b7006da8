// Sets of tiles as text and as marks. Pure functions.

import { ranges } from "abele/core/format.js";

/** Characters of tiles that a link and a question hold. */
export const LONGEST = 1_900;

/** Ascending numbers as ranges: [3, 10, 11, 12] is "3, 10-12". */
export function rangesText(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length;) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) j += 1;
    parts.push(i === j ? `${numbers[i]}` : `${numbers[i]}-${numbers[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}

/** A mark for each tile that a text of ranges names; null where the text is none. */
export function marked(text, numTiles) {
  const found = ranges(text);
  if (!found) return null;
  const marks = new Uint8Array(numTiles);
  for (const [low, high] of found) if (low < numTiles) marks.fill(1, low, Math.min(high + 1, numTiles));
  return marks;
}

/** The numbers that are marked, ascending. */
export function numbersOf(marks) {
  const found = [];
  for (let i = 0; i < marks.length; i += 1) if (marks[i]) found.push(i);
  return found;
}
