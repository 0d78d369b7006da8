// Places for labels beside the points that they name, so that none lies over another. Pure functions.

const AWAY = [3, 9, 18, 30, 45, 64, 90, 120];
const LED = 9;
const OVER_DOT = 24;
/** Directions from a point: right first, then left, below and above, then between. */
const SIDES = [[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1], [-1, 1], [-1, -1]];
const GAP = 1;

/**
 * @typedef {{x: number, y: number, radius: number, width: number, height: number, sides?: Array<[number, number]>}} Wanted
 *   a point and the size of its label; sides: directions to try, the best first
 * @typedef {{left: number, top: number, from: [number, number], to: [number, number], isLed: boolean}} Placed
 *   isLed: so far away that a line from the point to the label is due
 *
 * Each label takes the place that costs least of those that are free, the first label first: near, on a good side, over few
 * dots. One that finds none is null. The same labels get the same places.
 * @param {Wanted[]} wanted  those that matter most first
 * @param {{left: number, top: number, width: number, height: number}} box  that labels stay in
 * @param {Array<[number, number, number]>} [dots]  x, y and radius of what they should not cover
 * @returns {Array<Placed|null>}
 */
export function placed(wanted, box, dots = []) {
  const taken = [];
  return wanted.map((label) => {
    let [best, least] = [null, Infinity];
    for (const away of AWAY) {
      if (away >= least) break;
      (label.sides ?? SIDES).forEach((side, rank) => {
        const place = at(label, side, away);
        if (!inside(place, box) || taken.some((other) => overlap(place, other, GAP))) return;
        const cost = away + rank + OVER_DOT * dots.filter(([x, y, r]) => overlap(place, { left: x - r, top: y - r, width: 2 * r, height: 2 * r }, 0)).length;
        if (cost < least) [best, least] = [{ ...place, away }, cost];
      });
    }
    if (!best) return null;
    taken.push(best);
    return { left: best.left, top: best.top, isLed: best.away > LED, ...led(label, best) };
  });
}

function at({ x, y, radius, width, height }, [dx, dy], away) {
  const far = (radius + away) * (dx && dy ? Math.SQRT1_2 : 1);
  return { left: x + dx * far - (width * (1 - dx)) / 2, top: y + dy * far - (height * (1 - dy)) / 2, width, height };
}

function inside(a, box) {
  return a.left >= box.left && a.top >= box.top && a.left + a.width <= box.left + box.width && a.top + a.height <= box.top + box.height;
}

/** True if two boxes lie over each other, or nearer than a gap. */
export function overlap(a, b, gap = 0) {
  return a.left < b.left + b.width + gap && b.left < a.left + a.width + gap && a.top < b.top + b.height + gap && b.top < a.top + a.height + gap;
}

/** A line from the edge of a point to the nearest place of its label. */
function led({ x, y, radius }, { left, top, width, height }) {
  const to = [Math.min(Math.max(x, left), left + width), Math.min(Math.max(y, top), top + height)];
  const length = Math.hypot(to[0] - x, to[1] - y) || 1;
  const part = Math.min(1, radius / length);
  return { from: [x + (to[0] - x) * part, y + (to[1] - y) * part], to };
}
