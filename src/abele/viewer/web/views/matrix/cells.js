// Where the cells of the matrix lie and how they are toned. Pure functions.

const DECADES = 3;

/** The level at which one group is one pixel or two: log2 of what it joins. Finer ones would be four times as many squares. */
export function levelFor(span, pixels, least = 0) {
  return Math.max(least, Math.ceil(Math.log2(Math.max(span / Math.max(pixels, 1), 1))));
}

/** Where a value stands between nothing and the greatest: 0 to 1; the logarithmic scale spans three decades. */
export function toned(value, most, scale) {
  if (!(value > 0) || !(most > 0)) return 0;
  return Math.min(1, Math.max(0, scale === "log" ? 1 + Math.log10(value / most) / DECADES : value / most));
}

/** The tile at a place on the axis of rows, which is sorted in units of 2^head.unit tiles. */
export function tileAt({ head, arrays }, row) {
  const size = 2 ** head.unit;
  return head.sorted ? arrays.tile[Math.floor(row / size)] + (row % size) : row;
}

/** Places of the greatest values, the greatest first. */
export function greatest(values, number) {
  return [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, number);
}

/**
 * Bars of values along an axis; of several places in a pixel the greatest.
 * @param {ArrayLike<number>} values
 * @param {import("abele/core/range.js").Range} range  window, in places
 * @param {number} pixels
 * @returns {Array<{from: number, to: number, share: number, at: number}>}  pixels, part of the greatest of all values, place
 */
export function bars(values, range, pixels) {
  let most = 0;
  for (let i = 0; i < values.length; i += 1) most = Math.max(most, values[i]);
  if (!(most > 0)) return [];
  const [low, high] = [Math.max(0, Math.floor(range.low)), Math.min(values.length, Math.ceil(range.high))];
  const found = [];
  if (range.span <= pixels) {
    const gap = pixels / range.span > 4 ? 1 : 0;
    for (let at = low; at < high; at += 1) found.push({ from: range.pixel(at, pixels), to: range.pixel(at + 1, pixels) - gap, share: values[at] / most, at });
    return found;
  }
  for (let pixel = 0; pixel < pixels; pixel += 1) {
    let at = Math.max(low, Math.floor(range.value(pixel, pixels)));
    for (let k = at; k < Math.min(range.value(pixel + 1, pixels), high); k += 1) if (values[k] > values[at]) at = k;
    if (at < high && values[at] > 0) found.push({ from: pixel, to: pixel + 1, share: values[at] / most, at });
  }
  return found;
}
