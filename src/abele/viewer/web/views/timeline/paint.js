// Pictures of map tiles: painted once to a canvas of their own, then one drawImage a frame.

/** The colour of a style as 32 bits, as ImageData has it. */
export function packed(style, alpha = 255) {
  const match = /^#(..)(..)(..)$/.exec(style) ?? /^#(.)(.)(.)$/.exec(style);
  if (!match) return (alpha << 24) | 0x808080;
  const [r, g, b] = match.slice(1).map((x) => parseInt(x.length === 1 ? x + x : x, 16));
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** A canvas from pixels. */
export function canvasOf(pixels, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
  return canvas;
}

/** Pixels of a lane in a picture: fewer where there are many lanes, which are low on the screen. */
export function tallOf(lanes) {
  return lanes > 20 ? 16 : 32;
}

/**
 * Stacked shares of lanes: each lane tallOf(lanes) pixels high, parts from the bottom up, clear where it waits.
 * @param {Uint8Array} shares  255ths, [lanes, columns, parts]
 * @param {number[]} colours  of the parts, packed
 */
export function paintShares(shares, lanes, columns, colours) {
  const parts = colours.length;
  const TALL = tallOf(lanes);
  const pixels = new Uint32Array(lanes * TALL * columns);
  for (let lane = 0; lane < lanes; lane += 1) {
    for (let column = 0; column < columns; column += 1) {
      const at = (lane * columns + column) * parts;
      let sum = 0;
      let y = TALL;
      for (let part = 0; part < parts; part += 1) {
        const share = shares[at + part];
        if (!share) continue;
        sum += share;
        const top = Math.round(TALL * (1 - sum / 255));
        // What is there at all has a pixel.
        const reach = Math.min(top, y - 1);
        for (; y > reach && y > 0; y -= 1) pixels[(lane * TALL + y - 1) * columns + column] = colours[part];
      }
    }
  }
  return canvasOf(pixels, columns, lanes * TALL);
}

/**
 * Shares of columns from single spans.
 * @param {Object<string, any>} arrays  lane, start, cuts [spans, 4], part [spans, 4]
 * @returns {Uint8Array} [lanes, columns, parts]
 */
export function sharesOfSpans({ lane, start, cuts, part }, [low, high], lanes, columns, parts) {
  const sums = new Float32Array(lanes * columns * parts);
  const scale = columns / (high - low);
  for (let i = 0; i < start.length; i += 1) {
    let from = 0;
    for (let slot = 0; slot < 4; slot += 1) {
      const to = cuts[i * 4 + slot];
      if (to > from) {
        const left = Math.max((start[i] + from - low) * scale, 0);
        const right = Math.min((start[i] + to - low) * scale, columns);
        for (let column = Math.floor(left); column < right; column += 1) {
          sums[(lane[i] * columns + column) * parts + part[i * 4 + slot]] += Math.min(right, column + 1) - Math.max(left, column);
        }
      }
      from = to;
    }
  }
  const shares = new Uint8Array(sums.length);
  for (let at = 0; at < sums.length; at += parts) {
    let [sum, before] = [0, 0];
    for (let part = 0; part < parts; part += 1) {
      sum += sums[at + part];
      const now = Math.min(Math.round(sum * 255), 255);
      shares[at + part] = now - before;
      before = now;
    }
  }
  return shares;
}

/** One row a lane, its opacity a value in 255ths. */
export function paintAlpha(values, rows, columns, style) {
  const pixels = new Uint32Array(rows * columns);
  const colour = packed(style, 0);
  for (let i = 0; i < pixels.length; i += 1) pixels[i] = ((values[i] << 24) | colour) >>> 0;
  return canvasOf(pixels, columns, rows);
}

/** Pictures by answer, made anew when the theme changes. */
export class Pictures {
  constructor(paint) {
    this.paint = paint;
    this.kept = new WeakMap();
  }

  /** True where a picture is there. */
  has(answer, theme) {
    return this.kept.get(answer)?.theme === theme;
  }

  of(answer, theme, ...more) {
    const known = this.kept.get(answer);
    if (known && known.theme === theme) return known.picture;
    const picture = this.paint(answer, theme, ...more);
    this.kept.set(answer, { theme, picture });
    return picture;
  }
}

/** A steady number from a text, for colours of names. */
export function hashed(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
