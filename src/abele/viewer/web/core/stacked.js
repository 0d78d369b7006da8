// Stacked curves over an axis of whole numbers (tiles, steps), at the level of detail that the width allows. The server joins
// neighbouring places into buckets and tells of each the place with the greatest total, so that no peak vanishes; the least
// total of a bucket is a line. Each chunk of buckets is painted once, and then drawn as a picture.

import { Brush } from "abele/core/brush.js";
import { Chart } from "abele/core/chart.js";
import { bytes, count, marks } from "abele/core/format.js";
import { steer } from "abele/core/range.js";
import { SvgContext } from "abele/core/svg.js";
import { tips } from "abele/core/tip.js";

export const COLUMNS = 1024;
export const MARGIN = { left: 76, right: 10, top: 6, bottom: 20 };
const BARS_FROM = 5;
const MOST_WIDE = 16_384;

/** The level whose buckets are at least one pixel wide. */
export function levelFor(span, pixels, top) {
  return Math.min(Math.max(Math.ceil(Math.log2(Math.max(span, 1) / Math.max(pixels, 1))), 0), top);
}

/** The level at which a whole axis is one chunk. */
export const topLevel = (length) => Math.max(0, Math.ceil(Math.log2(Math.max(length, 1))) - Math.log2(COLUMNS));

/** Indices of the chunks of a level that a window touches. */
export function chunksIn(low, high, level, length) {
  const size = COLUMNS * 2 ** level;
  const last = Math.max(0, Math.ceil(Math.min(high, length) / size) - 1);
  const found = [];
  for (let i = Math.max(0, Math.floor(low / size)); i <= last; i += 1) found.push(i);
  return found;
}

/** Marks of an axis of bytes: round in the unit that is shown. */
export function byteMarks(top, most, unit) {
  const scale = unit === "KiB" ? 1024 : 1;
  return marks(0, top / scale, most).marks.map((value) => Math.abs(value) * scale);
}

export class Stacked {
  /**
   * @param {object} how
   * @param {string} how.label  what a screen reader says
   * @param {string} how.name  of the picture
   * @param {import("./range.js").Range} how.range  window on the axis, in places
   * @param {() => number} how.length  of the axis
   * @param {(place: {level: number, index: number}) => Promise<any>} how.ask  for a chunk
   * @param {(place: {level: number, index: number}) => any} how.known  a chunk that is here, or null
   * @param {(place: {level: number, index: number}) => boolean} [how.has]  whether there is such a chunk
   * @param {(name: string, index: number, theme: any) => string} how.colour  of a part
   * @param {() => string} how.unit  of bytes
   * @param {(place: number) => string} [how.axis]  what stands under a place of the axis
   * @param {() => Array<{value: number, title: string, colour?: string}>} [how.lines]  across the chart
   * @param {() => Array<[number, number]>} [how.bands]  places that are selected, ends included
   * @param {() => Array<{place: number, title?: string}>} [how.cursors]  upright lines
   * @param {(bucket: Bucket, event: PointerEvent) => void} [how.pick]
   * @param {(low: number, high: number, done: boolean) => void} [how.select]  shift and drag
   * @param {(bucket: Bucket) => Array<any>} how.tell  lines of the tip
   * @param {(head: any) => void} [how.loaded]  a first answer came
   * @typedef {{place: number, size: number, first: number, names: string[], values: number[], total: number, least: number, arrays: any, at: number}} Bucket
   */
  constructor(how) {
    Object.assign(this, { axis: (place) => count(place), lines: () => [], bands: () => [], cursors: () => [], has: () => true, loaded: () => {} }, how);
    this.how = how;
    this.head = null;
    this.pictures = new Map();
    this.asked = new Set();
    this.generation = 0;
    this.over = null;
    this.chart = new Chart({ label: how.label, name: how.name, draw: (context, place) => this.#draw(context, place) });
    this.chart.element.classList.add("grows");
    this.brush = new Brush({
      range: this.range, label: `${how.label}: the whole axis`, margins: () => ({ left: MARGIN.left, right: MARGIN.right }),
      draw: (context, place) => this.#whole(context, place),
    });
    this.onChange = () => this.chart.redraw();
    this.range.addEventListener("change", this.onChange);
    const { canvas } = this.chart;
    steer(canvas, this.range, () => ({ left: MARGIN.left, width: this.#width() }), {
      click: how.pick ? (event) => {
        const bucket = this.bucketAt(event);
        if (bucket) how.pick(bucket, event);
      } : undefined,
      select: how.select,
    });
    tips(canvas, (event) => {
      const bucket = this.bucketAt(event);
      return bucket ? how.tell(bucket) : null;
    });
    this.ready = this.reset();
  }

  destroy() {
    this.range.removeEventListener("change", this.onChange);
    this.brush.destroy();
    this.chart.destroy();
    this.generation += 1;
  }

  redraw() {
    this.chart.redraw();
    this.brush.redraw();
  }

  /** Ask anew: what the curve is of changed. What is there stays until the first answer is. */
  async reset() {
    this.generation += 1;
    const mine = this.generation;
    this.asked.clear();
    let answer;
    try {
      answer = await this.ask({ level: topLevel(this.length()), index: 0 });
    } catch (error) {
      if (mine === this.generation) this.failed?.(error);
      return;
    }
    if (mine !== this.generation) return;
    this.head = answer.head;
    this.pictures.clear();
    this.range.bound(0, Math.max(this.head.length, 1));
    this.loaded(this.head);
    this.redraw();
  }

  #width() {
    return Math.max(1, this.chart.width - MARGIN.left - MARGIN.right);
  }

  /** The bucket under the pointer; null beside the plot or where nothing is loaded. */
  bucketAt(event) {
    const x = event.clientX - this.chart.canvas.getBoundingClientRect().left - MARGIN.left;
    if (!this.head || x < 0 || x > this.#width()) return null;
    return this.bucket(Math.floor(this.range.value(x, this.#width())));
  }

  /** The bucket that holds a place, of the finest level that is drawn. */
  bucket(place) {
    if (!this.head || place < 0 || place >= this.head.length) return null;
    for (let level = this.#level(); level <= this.head.top; level += 1) {
      const size = 2 ** level;
      const index = Math.floor(place / (COLUMNS * size));
      const answer = this.known({ level, index });
      if (!answer) continue;
      const at = Math.floor(place / size) - index * COLUMNS;
      const { arrays } = answer;
      const columns = arrays.least.length;
      if (at >= columns) return null;
      const values = this.head.parts.map((_, part) => arrays.values[part * columns + at]);
      return { place: arrays.at[at], size, first: (index * COLUMNS + at) * size, names: this.head.parts, values, total: values.reduce((a, b) => a + b, 0), least: arrays.least[at], arrays, at };
    }
    return null;
  }

  #level() {
    const ratio = globalThis.devicePixelRatio || 1;
    let level = levelFor(this.range.span, this.#width() * ratio, this.head.top);
    while (level < this.head.top && !this.has({ level, index: Math.floor(this.range.low / (COLUMNS * 2 ** level)) })) level += 1;
    return level;
  }

  /** The greatest value that the chart has room for. */
  top() {
    const most = Math.max(this.head?.greatest ?? 0, ...this.lines().map((line) => line.value), 1);
    return most * 1.05;
  }

  #draw(context, { width, height, theme }) {
    const plot = { left: MARGIN.left, top: MARGIN.top, width: Math.max(1, width - MARGIN.left - MARGIN.right), height: Math.max(1, height - MARGIN.top - MARGIN.bottom) };
    context.font = theme.font;
    if (!this.head) return;
    const top = this.top();
    const y = (value) => plot.top + plot.height * (1 - value / top);
    const x = (place) => plot.left + this.range.pixel(place, plot.width);
    this.#scale(context, plot, theme, top, y);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    const level = this.#level();
    const size = COLUMNS * 2 ** level;
    for (const index of chunksIn(this.range.low, this.range.high, level, this.head.length)) this.#piece(context, plot, theme, top, level, index, index * size, Math.min((index + 1) * size, this.head.length), x, y);
    this.#marked(context, plot, theme, x, y);
    context.restore();
    this.#below(context, plot, theme, x);
  }

  /** Draw the places [low, high) with the finest chunk that is here, and ask for the one that is wanted. */
  #piece(context, plot, theme, top, level, index, low, high, x, y) {
    if (!this.known({ level, index }) && this.has({ level, index })) this.#fetch(level, index);
    for (let coarse = level; coarse <= this.head.top; coarse += 1) {
      const at = Math.floor(index / 2 ** (coarse - level));
      const answer = this.known({ level: coarse, index: at });
      if (!answer) continue;
      const size = 2 ** coarse;
      const start = at * COLUMNS * size;
      const columns = answer.arrays.least.length;
      if (!columns) return;
      const from = Math.max(low, Math.floor(this.range.low / size) * size);
      const to = Math.min(high, Math.ceil(this.range.high / size) * size);
      if (to <= from) return;
      const pixels = (size / this.range.span) * plot.width;
      if (pixels >= BARS_FROM || context instanceof SvgContext) {
        this.#bars(context, plot, theme, answer, start, size, from, to, x, y, pixels);
        return;
      }
      const picture = this.#picture(answer, coarse, at, Math.round(plot.height * (globalThis.devicePixelRatio || 1)), top, theme);
      context.imageSmoothingEnabled = false;
      const first = (from - start) / size;
      const last = Math.min((to - start) / size, columns);
      context.drawImage(picture, first, 0, last - first, picture.height, x(from), plot.top, ((last - first) * size / this.range.span) * plot.width, plot.height);
      return;
    }
  }

  #bars(context, plot, theme, { arrays }, start, size, from, to, x, y, pixels) {
    const columns = arrays.least.length;
    const gap = pixels >= 3 * BARS_FROM ? 1 : pixels >= BARS_FROM ? 0.5 : 0;
    const first = Math.floor((from - start) / size);
    const last = Math.min(Math.ceil((to - start) / size), columns);
    const below = new Float64Array(columns);
    this.head.parts.forEach((name, part) => {
      context.fillStyle = this.colour(name, part, theme);
      context.beginPath();
      for (let i = first; i < last; i += 1) {
        const value = arrays.values[part * columns + i];
        if (value > 0) context.rect(x(start + i * size), y(below[i] + value), Math.max(0.4, pixels - gap), y(below[i]) - y(below[i] + value));
        below[i] += value;
      }
      context.fill();
    });
    if (size > 1) {
      context.fillStyle = theme.ink;
      for (let i = first; i < last; i += 1) context.fillRect(x(start + i * size), y(arrays.least[i]), pixels, 1);
    }
  }

  /** A chunk as a picture: a column of pixels for each bucket. */
  #picture(answer, level, index, height, top, theme) {
    const key = `${level}/${index}`;
    const made = `${height} ${top} ${theme.dark}`;
    const kept = this.pictures.get(key);
    if (kept?.made === made && kept.answer === answer) return kept.canvas;
    const { arrays } = answer;
    const columns = arrays.least.length;
    const canvas = kept?.canvas ?? document.createElement("canvas");
    canvas.width = Math.min(columns, MOST_WIDE);
    canvas.height = Math.max(1, height);
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    const scale = canvas.height / top;
    const colours = this.head.parts.map((name, part) => pixelOf(this.colour(name, part, theme)));
    const ink = pixelOf(theme.ink);
    const thick = Math.round(globalThis.devicePixelRatio || 1);
    for (let i = 0; i < canvas.width; i += 1) {
      let below = 0;
      let from = canvas.height;
      for (let part = 0; part < colours.length; part += 1) {
        below += arrays.values[part * columns + i];
        const to = Math.max(0, Math.round(canvas.height - below * scale));
        for (let row = to; row < from; row += 1) pixels[row * canvas.width + i] = colours[part];
        from = Math.min(from, to);
      }
      if (level > 0) {
        const row = Math.min(Math.max(Math.round(canvas.height - arrays.least[i] * scale), 0), canvas.height - thick);
        for (let line = 0; line < thick; line += 1) pixels[(row + line) * canvas.width + i] = ink;
      }
    }
    pen.putImageData(image, 0, 0);
    this.pictures.set(key, { canvas, made, answer });
    if (this.pictures.size > 64) this.pictures.delete(this.pictures.keys().next().value);
    return canvas;
  }

  #scale(context, plot, theme, top, y) {
    context.textBaseline = "middle";
    context.textAlign = "right";
    const unit = this.unit();
    for (const value of byteMarks(top, Math.max(2, Math.floor(plot.height / 26)), unit)) {
      context.fillStyle = theme.rule;
      context.fillRect(plot.left, Math.round(y(value)), plot.width, 1);
      context.fillStyle = theme.dim;
      context.fillText(bytes(value, unit), plot.left - 6, y(value));
    }
  }

  #marked(context, plot, theme, x, y) {
    for (const [low, high] of this.bands()) {
      if (high < this.range.low || low > this.range.high) continue;
      const from = x(low);
      const wide = Math.max(1.5, x(high + 1) - from);
      context.globalAlpha = 0.16;
      context.fillStyle = theme.accent;
      context.fillRect(from, plot.top, wide, plot.height);
      context.globalAlpha = 1;
      context.fillRect(from, plot.top + plot.height - 3, wide, 3);
    }
    context.textAlign = "left";
    context.textBaseline = "bottom";
    for (const line of this.lines()) {
      context.strokeStyle = line.colour ?? theme.bad;
      context.lineWidth = 1.5;
      context.setLineDash([6, 4]);
      context.beginPath();
      context.moveTo(plot.left, y(line.value));
      context.lineTo(plot.left + plot.width, y(line.value));
      context.stroke();
      context.setLineDash([]);
      const base = Math.max(y(line.value) - 2, plot.top + 14);
      context.globalAlpha = 0.85;
      context.fillStyle = theme.panel;
      context.fillRect(plot.left + 3, base - 14, context.measureText(line.title).width + 6, 14);
      context.globalAlpha = 1;
      context.fillStyle = line.colour ?? theme.bad;
      context.fillText(line.title, plot.left + 6, base);
    }
    context.textBaseline = "top";
    const taken = [];
    for (const { place, title, colour } of this.cursors()) {
      if (place < this.range.low - 1 || place > this.range.high) continue;
      const middle = x(place + 0.5);
      context.fillStyle = colour ?? theme.ink;
      context.fillRect(middle - 0.75, plot.top, 1.5, plot.height);
      if (title) {
        const wide = context.measureText(title).width;
        const left = middle + 4 + wide > plot.left + plot.width ? middle - wide - 6 : middle + 4;
        if (taken.some(([from, to]) => left < to && left + wide > from)) continue;
        taken.push([left, left + wide + 4]);
        context.globalAlpha = 0.85;
        context.fillStyle = theme.panel;
        context.fillRect(left - 2, plot.top, wide + 4, 15);
        context.globalAlpha = 1;
        context.fillStyle = colour ?? theme.ink;
        context.fillText(title, left, plot.top + 1);
      }
    }
  }

  #below(context, plot, theme, x) {
    context.fillStyle = theme.dim;
    context.textAlign = "center";
    context.textBaseline = "top";
    const base = plot.top + plot.height;
    context.fillStyle = theme.rule;
    context.fillRect(plot.left, base, plot.width, 1);
    context.fillStyle = theme.dim;
    for (const place of marks(this.range.low, this.range.high, Math.max(2, Math.floor(plot.width / 90))).marks) {
      if (place !== Math.round(place) || place >= this.head.length) continue;
      const middle = x(place + 0.5);
      if (middle < plot.left || middle > plot.left + plot.width) continue;
      context.fillRect(middle, base, 1, 4);
      context.fillText(this.axis(place), middle, base + 5);
    }
  }

  #whole(context, { left, width, height, theme }) {
    if (!this.head) return;
    const answer = this.known({ level: this.head.top, index: 0 });
    if (!answer) return;
    const { arrays } = answer;
    const columns = arrays.least.length;
    if (!columns) return;
    const scale = height / this.top();
    const wide = (width * 2 ** this.head.top) / this.head.length;
    context.fillStyle = theme.dim;
    context.globalAlpha = 0.55;
    context.beginPath();
    context.moveTo(left, height);
    for (let i = 0; i < columns; i += 1) {
      let total = 0;
      for (let part = 0; part < this.head.parts.length; part += 1) total += arrays.values[part * columns + i];
      context.lineTo(left + i * wide, height - total * scale);
      context.lineTo(left + Math.min((i + 1) * wide, width), height - total * scale);
    }
    context.lineTo(left + width, height);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = theme.accent;
    const place = width / this.head.length;
    for (const [low, high] of this.bands()) context.fillRect(left + low * place, height - 3, Math.max(1.5, (high + 1 - low) * place), 3);
    for (const cursor of this.cursors()) context.fillRect(left + (cursor.place + 0.5) * place - 0.75, 0, 1.5, height);
  }

  #fetch(level, index) {
    const key = `${this.generation} ${level}/${index}`;
    if (this.asked.has(key)) return;
    this.asked.add(key);
    const mine = this.generation;
    this.ask({ level, index }).then(() => mine === this.generation && this.redraw(), () => {});
  }
}

const kept = new Map();

/** A colour of the styles as a pixel, little-endian. */
function pixelOf(colour) {
  if (!kept.has(colour)) {
    const canvas = document.createElement("canvas");
    canvas.width = 1;
    canvas.height = 1;
    const pen = canvas.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    kept.set(colour, new Uint32Array(pen.getImageData(0, 0, 1, 1).data.buffer)[0]);
  }
  return kept.get(colour);
}
