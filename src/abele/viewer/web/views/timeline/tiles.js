// Tiles over time: rows of tiles, from all of them to one with its workers; what each does in every superstep.

import { count, fitted, marks } from "abele/core/format.js";
import { font, isFirst } from "abele/views/timeline/labels.js";
import { Mosaic } from "abele/views/timeline/mosaic.js";
import { Pictures, canvasOf } from "abele/views/timeline/paint.js";

const AXIS = 20;
const ROWS = 128;
const LEAST_ROW = 3;
const PAINTED = 1024;
const COLUMNS = 512;
const SLOT_KINDS = ["sync", "exchange", "streams", "work"];
const KIND_PARTS = { compute: "compute", arrange: "arrange", exchange: "exchange", sync: "sync", streams: "host" };

/** How many times tiles are halved into rows so that rows of so many tiles have at least LEAST_ROW pixels. */
export function rowHeight(tiles, pixels) {
  return Math.max(Math.ceil(Math.log2(Math.max((tiles * LEAST_ROW) / Math.max(pixels, 1), 1))), 0);
}

/** Part of each worker's time in which it computes, where a tile runs so many vertices; all of them share it where that is −1. */
export function workerShares(vertices, workers) {
  if (vertices < 0) return Array(workers).fill(1);
  return Array.from({ length: workers }, (_, w) => Math.min(Math.max(vertices - w, 0), 1));
}

const rgb = (style) => {
  const m = /^#(..)(..)(..)$/.exec(style);
  return m ? m.slice(1).map((x) => parseInt(x, 16)) : [128, 128, 128];
};
const pack = (r, g, b) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

export class TilesPicture {
  /**
   * @param {import("abele/core/context.js").Context} context
   * @param {any} outline
   * @param {import("abele/core/range.js").Range} range  cycles
   * @param {import("abele/core/range.js").Range} rows  tiles
   * @param {() => void} redraw
   * @param {() => any} how
   */
  constructor(context, outline, range, rows, redraw, how) {
    Object.assign(this, { context, outline, range, rows, how });
    this.mosaic = new Mosaic({ context, question: "timeline.tiles", params: () => ({ program: context.program }), most: outline.total, loaded: redraw });
    this.pictures = new Pictures((answer, theme, window) => (answer.head.mode === "shares" ? paintMixed(answer, theme) : paintFine(answer, theme, window)));
  }

  get left() {
    return 96;
  }

  /** Answers that cover what is seen. */
  cover(plot, tall) {
    const { low, high } = this.range;
    // A page without a server has the tiles in rows of one height.
    const height = this.context.source.isFrozen ? this.outline.whole_height : rowHeight(this.rows.span, tall);
    const each = ROWS * 2 ** height;
    const found = [];
    for (let chunk = Math.floor(this.rows.low / each); chunk * each < this.rows.high; chunk += 1) {
      let tiles = this.mosaic.cover(low, high, plot, { height, chunk });
      if (!tiles.length) {
        // Coarser rows, while these load.
        for (let up = height + 1; !tiles.length && up < height + 8; up += 1) {
          const known = this.context.known("timeline.tiles", { program: this.context.program, height: up, chunk: Math.floor(chunk / 2 ** (up - height)), level: 0, index: 0 });
          if (known) tiles = [{ low: 0, high: this.outline.total, own: [0, this.outline.total], answer: known }];
        }
      }
      found.push(...tiles.map((tile) => ({ ...tile, clip: [chunk * each, (chunk + 1) * each] })));
    }
    return found;
  }

  draw(context, { width, height, theme }) {
    const plot = width - this.left - 8;
    const tall = height - AXIS;
    const { low, high } = this.range;
    const x = (value) => this.left + ((value - low) / (high - low)) * plot;
    const y = (tile) => AXIS + ((tile - this.rows.low) / this.rows.span) * tall;
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, plot, tall);
    context.clip();
    context.fillStyle = theme.parts.idle;
    context.fillRect(this.left, AXIS, Math.min(x(this.outline.total), this.left + plot) - this.left, tall);
    context.imageSmoothingEnabled = false;
    const shown = this.cover(plot, tall);
    for (const tile of shown) {
      const canvas = this.pictures.of(tile.answer, theme, tile.own);
      const { edges } = tile.answer.arrays;
      const [a, b] = tile.own;
      const from = ((tile.low - a) / (b - a)) * canvas.width;
      const wide = ((tile.high - tile.low) / (b - a)) * canvas.width;
      const rows = edges.length - 1;
      if (rows < 1) continue;
      // Rows are of equal numbers of tiles, but for the last.
      const each = edges[1] - edges[0];
      const first = Math.max((tile.clip[0] - edges[0]) / each, 0);
      const last = Math.min((tile.clip[1] - edges[0]) / each, rows);
      const end = Math.min(edges[0] + last * each, edges[rows]);
      context.drawImage(canvas, from, first, wide, last - first, x(tile.low), y(edges[0] + first * each), x(tile.high) - x(tile.low), y(edges[0] + last * each) - y(edges[0] + first * each));
      if (end < edges[0] + last * each) {
        context.fillStyle = theme.panel;
        context.fillRect(this.left, y(end), plot, height);
      }
    }
    const rowTall = tall / this.rows.span;
    if (rowTall > 8) this.#rules(context, theme, plot, y);
    if (rowTall > 26) this.#names(context, shown, theme, x, y, rowTall, plot);
    this.#selection(context, theme, x, y, plot, height);
    context.restore();
    this.#labels(context, theme, y, height, tall);
  }

  get workers() {
    return this.rows.span <= 1.01 && this.outline.workers > 1 ? this.outline.workers : 0;
  }

  #rules(context, theme, plot, y) {
    context.fillStyle = theme.panel;
    for (let tile = Math.ceil(this.rows.low); tile <= this.rows.high; tile += 1) context.fillRect(this.left, Math.round(y(tile)), plot, 1);
  }

  /** Names of steps above wide enough spans, and the workers of a single tile. */
  #names(context, shown, theme, x, y, rowTall, plot) {
    const labels = [];
    for (const tile of shown) {
      const { answer } = tile;
      if (answer.head.mode !== "spans") continue;
      let at = 0;
      for (const stretch of answer.head.stretches) {
        for (let i = at; i < at + stretch.spans; i += 1) this.#span(context, tile, stretch, i, i - at, theme, x, y, rowTall, plot, labels);
        at += stretch.spans;
      }
    }
    context.font = font(11);
    context.textBaseline = "top";
    context.textAlign = "left";
    context.fillStyle = theme.ink;
    for (const [name, a, b, top] of labels) context.fillText(fitted(context, name, b - a - 8), a + 4, top);
  }

  #span(context, tile, stretch, i, inside, theme, x, y, rowTall, plot, labels) {
    const { start, cuts, step, edges, vertices, compute } = tile.answer.arrays;
    const [a, b] = [Math.max(x(start[i]), x(tile.low), this.left), Math.min(x(start[i] + cuts[i * 4 + 3]), x(tile.high), this.left + plot)];
    if (b <= a) return;
    const tiles = edges[stretch.first + 1] - edges[stretch.first];
    if (tiles !== 1) return;
    const offset = (tile.answer.offsets ??= offsetsOf(tile.answer.head.stretches))[tile.answer.head.stretches.indexOf(stretch)];
    for (let row = 0; row < stretch.rows; row += 1) {
      const number = edges[stretch.first + row];
      if (number + 1 <= this.rows.low || number >= this.rows.high) continue;
      const top = y(number);
      if (this.workers && cuts[i * 4 + 3] > cuts[i * 4 + 2]) {
        const own = compute[offset + inside * stretch.rows + row];
        const from = Math.max(x(start[i] + cuts[i * 4 + 2]), a);
        const to = Math.min(x(start[i] + cuts[i * 4 + 2] + own), b);
        if (own > 0 && to > from) {
          // The work is covered by what each worker has of it.
          const each = rowTall / this.workers;
          context.fillStyle = theme.parts.idle;
          context.fillRect(from, top, to - from, rowTall);
          context.fillStyle = theme.parts[tile.answer.arrays.part[i * 4 + 3] === 1 ? "arrange" : "compute"];
          workerShares(vertices[i], this.workers).forEach((share, w) => {
            if (share) context.fillRect(from, top + w * each, Math.max((to - from) * share, 0.5), each - 2);
          });
        }
      }
      const end = Math.min(x(start[i] + cuts[i * 4 + 3]), this.left + plot);
      if (end - a > 44 && isFirst(tile, start[i], this.range.low)) {
        const name = tile.answer.head.names[step[i]] ?? "";
        labels.push([name.slice(name.lastIndexOf("/") + 1), a, end, Math.max(top, AXIS) + 4]);
      }
      if (b - a > 5 && start[i] + cuts[i * 4 + 3] <= tile.high) {
        context.fillStyle = theme.panel;
        context.fillRect(b - 1, top, 1, rowTall);
      }
    }
  }

  #selection(context, theme, x, y, plot, height) {
    const { window, selected, tiles } = this.how();
    if (window) {
      const [a, b] = window.map(x);
      context.globalAlpha = 0.14;
      context.fillStyle = theme.accent;
      context.fillRect(a, AXIS, b - a, height);
      context.globalAlpha = 1;
      context.fillRect(a - 0.5, AXIS, 1, height);
      context.fillRect(b - 0.5, AXIS, 1, height);
    }
    if (selected) {
      context.fillStyle = theme.ink;
      context.fillRect(x(selected.start), AXIS, 1, height);
      context.fillRect(x(selected.start + selected.cycles), AXIS, 1, height);
    }
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    for (const [first, last] of tiles ?? []) context.strokeRect(this.left + 1, y(first) + 0.5, plot - 2, Math.max(y(last + 1) - y(first) - 1, 1));
  }

  #labels(context, theme, y, height, tall) {
    context.font = font(12);
    context.fillStyle = theme.dim;
    context.textAlign = "right";
    context.textBaseline = "middle";
    if (this.workers) {
      context.fillStyle = theme.ink;
      context.fillText(`tile ${count(Math.round(this.rows.low))}`, this.left - 8, AXIS / 2);
      context.fillStyle = theme.dim;
      for (let w = 0; w < this.workers; w += 1) context.fillText(`worker ${w}`, this.left - 8, AXIS + ((w + 0.5) * tall) / this.workers);
      return;
    }
    const { marks: found } = marks(this.rows.low, this.rows.high, Math.max(Math.floor(tall / 28), 1));
    for (const tile of found.filter((t) => Number.isInteger(t) && t < this.rows.high)) {
      const row = y(tile + 1) - y(tile);
      const at = row > 10 ? y(tile) + row / 2 : y(tile) + 1;
      if (at > AXIS && at < height) context.fillText(`tile ${count(Math.abs(tile))}`, this.left - 8, at);
    }
  }

  /** What lies at a place. */
  at(px, py, width, height) {
    if (py < AXIS || px < this.left || px > width - 8) return null;
    const plot = width - this.left - 8;
    const tall = height - AXIS;
    const cycle = this.range.value(px - this.left, plot);
    const tile = Math.floor(this.rows.value(py - AXIS, tall));
    const found = { cycle, tile, lane: -1, span: null, shares: null, tiles: 1 };
    const own = this.cover(plot, tall).find((t) => cycle >= t.low && cycle < t.high && tile >= t.clip[0] && tile < t.clip[1]);
    if (!own) return found;
    const { head, arrays } = own.answer;
    const row = arrays.edges.findLastIndex((edge) => edge <= tile);
    if (row < 0 || row >= arrays.edges.length - 1) return found;
    found.tiles = arrays.edges[row + 1] - arrays.edges[row];
    if (head.mode === "shares") {
      const kinds = head.kinds.length;
      const column = Math.min(Math.floor(((cycle - own.own[0]) / (own.own[1] - own.own[0])) * COLUMNS), COLUMNS - 1);
      found.shares = head.kinds.map((kind, k) => [kind, arrays.shares[(row * COLUMNS + column) * kinds + k] / 255]);
      return found;
    }
    let [first, offset] = [0, 0];
    for (const stretch of head.stretches) {
      if (row >= stretch.first && row < stretch.first + stretch.rows) {
        found.lane = stretch.lane;
        for (let i = first; i < first + stretch.spans; i += 1) {
          const length = arrays.cuts[i * 4 + 3];
          if (cycle < arrays.start[i] || cycle >= arrays.start[i] + length) continue;
          const at = offset + (i - first) * stretch.rows + row - stretch.first;
          found.span = { step: arrays.step[i], start: arrays.start[i], cycles: length, name: head.names[arrays.step[i]],
            work: arrays.cuts[i * 4 + 3] - arrays.cuts[i * 4 + 2], compute: arrays.compute[at], most: arrays.most[at], exchange: arrays.exchange[at], vertices: arrays.vertices[i] };
        }
      }
      first += stretch.spans;
      offset += stretch.spans * stretch.rows;
    }
    return found;
  }
}

function offsetsOf(stretches) {
  let at = 0;
  return stretches.map((s) => {
    const mine = at;
    at += s.spans * s.rows;
    return mine;
  });
}

/** Rows of columns, each the mixture of what goes on in it. */
function paintMixed({ head, arrays }, theme) {
  const rows = arrays.edges.length - 1;
  const colours = head.kinds.map((kind) => rgb(theme.parts[KIND_PARTS[kind]]));
  const idle = rgb(theme.parts.idle);
  const pixels = new Uint32Array(rows * COLUMNS);
  const kinds = colours.length;
  const { shares } = arrays;
  for (let i = 0; i < pixels.length; i += 1) {
    let [r, g, b, left] = [0, 0, 0, 255];
    for (let k = 0; k < kinds; k += 1) {
      const share = shares[i * kinds + k];
      if (!share) continue;
      r += colours[k][0] * share;
      g += colours[k][1] * share;
      b += colours[k][2] * share;
      left -= share;
    }
    pixels[i] = pack((r + idle[0] * left) / 255, (g + idle[1] * left) / 255, (b + idle[2] * left) / 255);
  }
  return canvasOf(pixels, COLUMNS, Math.max(rows, 1));
}

/** Rows of columns from single spans: sync, then exchange and work for as long as a tile has of them, then waiting. */
function paintFine({ head, arrays }, theme, [low, high]) {
  const rows = Math.max(arrays.edges.length - 1, 1);
  const pixels = new Uint32Array(rows * PAINTED);
  const idle = pack(...rgb(theme.parts.idle));
  const colour = Object.fromEntries(Object.entries(KIND_PARTS).map(([kind, part]) => [kind, rgb(theme.parts[part])]));
  const mix = (a, share) => pack(...a.map((c, n) => Math.round(c * share + rgb(theme.parts.idle)[n] * (1 - share))));
  const solid = Object.fromEntries(Object.entries(colour).map(([kind, c]) => [kind, pack(...c)]));
  const half = Object.fromEntries(Object.entries(colour).map(([kind, c]) => [kind, mix(c, 0.4)]));
  pixels.fill(idle);
  const scale = PAINTED / (high - low);
  const offsets = offsetsOf(head.stretches);
  let first = 0;
  head.stretches.forEach((stretch, s) => {
    for (let i = 0; i < stretch.spans; i += 1) {
      const span = first + i;
      const start = arrays.start[span] - low;
      const end = Math.min((start + arrays.cuts[span * 4 + 3]) * scale, PAINTED);
      for (let column = Math.max(Math.floor(start * scale), 0); column < end; column += 1) {
        // A column shows what goes on in its middle, or where the span begins if that is later.
        const at = Math.min(Math.max((column + 0.5) / scale - start, 0), arrays.cuts[span * 4 + 3] - 1e-9);
        let slot = 0;
        while (slot < 3 && at >= arrays.cuts[span * 4 + slot]) slot += 1;
        const inside = at - (slot ? arrays.cuts[span * 4 + slot - 1] : 0);
        const kind = SLOT_KINDS[slot] === "work" ? (arrays.part[span * 4 + 3] === 1 ? "arrange" : "compute") : SLOT_KINDS[slot];
        const from = offsets[s] + i * stretch.rows;
        for (let row = 0; row < stretch.rows; row += 1) {
          let value = solid[kind];
          if (slot === 3) value = inside < arrays.compute[from + row] ? solid[kind] : inside < arrays.most[from + row] ? half[kind] : idle;
          else if (slot === 1) value = inside < arrays.exchange[from + row] ? solid.exchange : idle;
          pixels[(stretch.first + row) * PAINTED + column] = value;
        }
      }
    }
    first += stretch.spans;
  });
  return canvasOf(pixels, PAINTED, rows);
}
