// The picture of what was measured on the host: events nested by thread, flags, lines and areas of numbers, heat maps.

import { fitted, marks, short } from "abele/core/format.js";
import { visible } from "abele/views/timeline/lanes.js";
import { Mosaic } from "abele/views/timeline/mosaic.js";
import { Pictures, canvasOf, hashed, packed } from "abele/views/timeline/paint.js";
import { SIZES, placed, rowsOf } from "abele/views/host/rows.js";
import { font } from "abele/views/timeline/labels.js";

export const AXIS = 20;
const { EVENT } = SIZES;
const MOST_DRAWN = 2500;
const PAINTED = 1024;

/** Events of less than this many ns are told as shorter than 1 µs. */

export class HostPicture {
  /**
   * @param {import("abele/core/context.js").Context} context
   * @param {any} outline
   * @param {import("abele/core/range.js").Range} range  ns
   * @param {() => void} redraw
   * @param {() => any} how
   */
  constructor(context, outline, range, redraw, how) {
    Object.assign(this, { context, outline, range, how });
    this.scroll = 0;
    const common = { context, most: Math.max(outline.duration, 1), loaded: redraw, deepest: 50 };
    this.events = new Mosaic({ ...common, question: "host.events" });
    this.series = new Mosaic({ ...common, question: "host.series" });
    this.heat = new Mosaic({ ...common, question: "host.heatmap" });
    this.bounds = new WeakMap();
    this.eventPictures = new Pictures((answer, theme, window, depth) => paintEvents(answer, theme, window, depth));
    this.heatPictures = new Pictures((answer, _, colours, most, log) => paintHeat(answer, colours, most, log));
  }

  get left() {
    return 168;
  }

  layout(height) {
    const found = placed(rowsOf(this.outline, this.how()), AXIS, height, this.scroll);
    this.scroll = found.scroll;
    return found;
  }

  draw(context, { width, height, theme }) {
    const plot = width - this.left - 8;
    const { low, high } = this.range;
    const x = (value) => this.left + ((value - low) / (high - low)) * plot;
    const layout = this.layout(height);
    this.seen = [];
    for (const pinned of [false, true]) {
      context.save();
      context.beginPath();
      if (pinned) context.rect(0, AXIS, width, layout.held - AXIS);
      else context.rect(0, layout.held, width, height - layout.held);
      context.clip();
      for (const row of layout.rows) {
        if (Boolean(row.pinned) !== pinned || row.top > height || row.top + row.height < AXIS) continue;
        this.seen.push(row);
        this.#label(context, row, theme, width);
        if (row.kind === "head") continue;
        context.save();
        context.beginPath();
        context.rect(this.left, row.top, plot, row.height);
        context.clip();
        if (row.kind === "thread") this.#thread(context, row, x, plot, theme);
        else if (!row.shut && row.kind === "graph") this.#graph(context, row, x, plot, theme);
        else if (!row.shut) this.#heat(context, row, x, plot, theme);
        context.restore();
      }
      context.restore();
    }
    if (layout.rows.some((row) => row.pinned)) {
      context.fillStyle = theme.accent;
      context.fillRect(0, layout.held - 2, width, 1);
    }
    const { window } = this.how();
    if (window) {
      const [a, b] = window.map(x);
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.14;
      context.fillRect(Math.max(a, this.left), AXIS, Math.min(b, this.left + plot) - Math.max(a, this.left), height);
      context.globalAlpha = 1;
    }
  }

  #label(context, row, theme, width) {
    context.textBaseline = "middle";
    context.textAlign = "left";
    if (row.kind === "head") {
      context.fillStyle = theme.hover;
      context.fillRect(0, row.top, width, row.height);
    }
    context.fillStyle = theme.dim;
    context.font = font(10);
    const isShut = row.shut || (row.kind === "head" && this.how().shut.has(row.key));
    const at = Math.min(row.top + row.height / 2, row.top + 10);
    context.fillText(isShut ? "▸" : "▾", 4 + row.level * 8, at);
    if (row.kind !== "head") {
      context.fillStyle = row.pinned ? theme.accent : theme.rule;
      context.fillText("▲", this.left - 16, at);
    }
    context.font = row.kind === "head" ? font(12, 600) : font(12);
    context.fillStyle = theme.ink;
    context.fillText(fitted(context, row.title, row.kind === "head" ? 300 : this.left - 44 - row.level * 8), 18 + row.level * 8, at);
    if (row.note && row.height >= 30 || row.kind === "head") {
      context.font = font(11);
      context.fillStyle = theme.dim;
      if (row.kind === "head") context.fillText(fitted(context, row.note, width - 360), 340, at);
      else context.fillText(fitted(context, row.note, this.left - 34), 18 + row.level * 8, at + 15);
    }
  }

  #depths(answer, depth) {
    let found = this.bounds.get(answer);
    if (!found) {
      found = new Int32Array(depth + 1);
      const column = answer.arrays.depth;
      for (let i = 0; i < column.length; i += 1) if (column[i] < depth) found[column[i] + 1] = i + 1;
      for (let i = 1; i <= depth; i += 1) found[i] = Math.max(found[i], found[i - 1]);
      this.bounds.set(answer, found);
    }
    return found;
  }

  #thread(context, row, x, plot, theme) {
    const { low, high } = this.range;
    const { selected } = this.how();
    const depth = row.shut ? 1 : row.depth;
    const tall = EVENT;
    const top = row.top + (row.instants && !row.shut ? 12 : 0);
    const tiles = this.events.cover(low, high, plot, { source: row.source, thread: row.thread });
    let many = 0;
    for (const tile of tiles) {
      const index = this.#depths(tile.answer, row.depth);
      const { start, cycles } = tile.answer.arrays;
      tile.seen = Array.from({ length: depth }, (_, d) => visible(start, cycles, index[d], index[d + 1], Math.max(low, tile.low), Math.min(high, tile.high)));
      many += tile.seen.reduce((sum, [a, b]) => sum + b - a, 0);
    }
    const labels = [];
    context.imageSmoothingEnabled = false;
    for (const tile of tiles) {
      const { arrays, head } = tile.answer;
      const [left, right] = [Math.max(x(tile.low), this.left), Math.min(x(tile.high), this.left + plot)];
      if (many > MOST_DRAWN) {
        const canvas = this.eventPictures.of(tile.answer, theme, tile.own, row.depth);
        const [a, b] = tile.own;
        const from = ((tile.low - a) / (b - a)) * canvas.width;
        context.drawImage(canvas, from, 0, ((tile.high - tile.low) / (b - a)) * canvas.width, depth, x(tile.low), top, x(tile.high) - x(tile.low), depth * tall);
      }
      for (let d = 0; d < depth; d += 1) {
        for (let i = tile.seen[d][0]; i < tile.seen[d][1]; i += 1) {
          const a = Math.max(x(arrays.start[i]), left);
          const b = Math.min(x(arrays.start[i] + arrays.cycles[i]), right);
          const name = head.names[arrays.node[i]];
          if (many <= MOST_DRAWN) {
            context.fillStyle = theme.series[hashed(name) % theme.series.length];
            context.fillRect(a, top + d * tall, Math.max(b - a - (b - a > 3 ? 1 : 0), 1), tall - 1);
          }
          if (selected && selected.source === row.source && selected.row === arrays.row[i]) {
            context.strokeStyle = theme.ink;
            context.lineWidth = 2;
            context.strokeRect(a, top + d * tall, Math.max(b - a, 2), tall - 1);
          }
          if (b - a > 26) labels.push([arrays.count[i] > 1 ? `${name} …` : name, a, b, top + d * tall]);
        }
      }
      for (let i = 0; i < arrays.marks.length; i += 1) {
        if (arrays.marks[i] < tile.low || arrays.marks[i] >= tile.high) continue;
        const at = x(arrays.marks[i]);
        context.fillStyle = theme.bad;
        context.fillRect(at - 0.5, row.top, 1, row.shut ? row.height : top - row.top + depth * tall);
        context.beginPath();
        context.moveTo(at, row.top);
        context.lineTo(at + 8, row.top + 4);
        context.lineTo(at, row.top + 8);
        context.fill();
        if (!row.shut) labels.push([head.names[arrays.mark_node[i]], at + 8, at + 90, row.top - 2, true]);
      }
    }
    context.font = font(11);
    context.textBaseline = "middle";
    context.textAlign = "left";
    let reached = -Infinity;
    for (const [name, a, b, y, isMark] of labels) {
      if (isMark) {
        if (a < reached) continue;
        reached = b;
      }
      context.fillStyle = isMark ? theme.dim : theme.dark ? "#0b0e12" : "#ffffff";
      context.fillText(fitted(context, name, b - a - 6), a + 3, y + tall / 2 - 0.5);
    }
  }

  #graph(context, row, x, plot, theme) {
    const { low, high } = this.range;
    const { area } = this.how();
    const finite = (values) => values.filter((v) => v !== null && Number.isFinite(v));
    const least = Math.min(...finite(row.series.map((s) => s.low)), Infinity);
    const most = Math.max(...finite(row.series.map((s) => s.high)), -Infinity);
    context.strokeStyle = theme.rule;
    context.lineWidth = 1;
    context.fillStyle = theme.dim;
    context.font = font(10);
    context.textAlign = "left";
    context.textBaseline = "middle";
    const room = row.height - 8;
    if (!row.scaled && Number.isFinite(least)) {
      const from = area ? Math.min(least, 0) : least;
      for (const at of marks(from, most === from ? from + 1 : most, 3).marks) {
        const y = Math.round(row.top + 4 + room * (1 - (at - from) / (most - from || 1))) + 0.5;
        context.beginPath();
        context.moveTo(this.left, y);
        context.lineTo(this.left + plot, y);
        context.stroke();
        context.fillText(short(at), this.left + 2, Math.min(Math.max(y - 5, row.top + 5), row.top + row.height - 5));
      }
    }
    row.series.forEach((series, n) => {
      const [bottom, top] = row.scaled ? [series.low ?? 0, series.high ?? 1] : [least, most];
      const from = area ? Math.min(bottom, 0) : bottom;
      const y = (v) => row.top + 4 + room * (1 - (v - from) / (top - from || 1));
      const colour = theme.series[n % theme.series.length];
      context.strokeStyle = colour;
      context.fillStyle = colour;
      for (const tile of this.series.cover(low, high, plot, { source: row.source, series: series.i })) {
        const { time, value, low: lows, high: highs } = tile.answer.arrays;
        context.save();
        context.beginPath();
        context.rect(x(tile.low), row.top, x(tile.high) - x(tile.low), row.height);
        context.clip();
        context.lineWidth = 1.5;
        context.beginPath();
        let pen = false;
        let first = 0;
        for (let i = 0; i < time.length; i += 1) {
          if (!Number.isFinite(value[i])) {
            pen = false;
            continue;
          }
          const at = x(time[i]);
          if (pen) context.lineTo(at, y(value[i]));
          else {
            context.moveTo(at, y(value[i]));
            first = at;
          }
          pen = true;
          if (highs[i] > lows[i]) {
            context.moveTo(at, y(lows[i]));
            context.lineTo(at, y(highs[i]));
            context.moveTo(at, y(value[i]));
          }
        }
        context.stroke();
        if (area && pen) {
          context.beginPath();
          context.moveTo(first, y(from));
          let last = first;
          for (let i = 0; i < time.length; i += 1) {
            if (!Number.isFinite(value[i])) continue;
            last = x(time[i]);
            context.lineTo(last, y(value[i]));
          }
          context.lineTo(last, y(from));
          context.globalAlpha = 0.25;
          context.fill();
          context.globalAlpha = 1;
        }
        context.restore();
      }
    });
  }

  #heat(context, row, x, plot, theme) {
    const { low, high } = this.range;
    const { log } = this.how();
    context.imageSmoothingEnabled = false;
    for (const tile of this.heat.cover(low, high, plot, { source: row.source, heatmap: row.heatmap })) {
      const canvas = this.heatPictures.of(tile.answer, `${theme.dark}${log}`, theme, row.data.most, log);
      const { time, until } = tile.answer.arrays;
      context.save();
      context.beginPath();
      context.rect(x(tile.low), row.top, x(tile.high) - x(tile.low), row.height);
      context.clip();
      for (let i = 0; i < time.length; i += 1) {
        const [a, b] = [x(time[i]), x(until[i])];
        if (b < this.left || a > this.left + plot) continue;
        context.drawImage(canvas, i, 0, 1, canvas.height, a, row.top + 2, Math.max(b - a + 0.5, 1), row.height - 4);
      }
      context.restore();
    }
    context.fillStyle = theme.dim;
    context.font = font(10);
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(short(row.data.high), this.left + 2, row.top + 7);
    context.fillText(short(row.data.low), this.left + 2, row.top + row.height - 7);
  }

  /** What lies at a place. */
  at(px, py, width, height) {
    if (py < AXIS || px > width - 8) return null;
    const layout = this.layout(height);
    const row = layout.rows.find((r) => py >= r.top && py < r.top + r.height && (r.pinned || py >= layout.held));
    if (!row) return null;
    if (px < this.left || row.kind === "head") return { row, isLabel: true, isPin: row.kind !== "head" && px > this.left - 20 && px < this.left };
    const plot = width - this.left - 8;
    const time = this.range.value(px - this.left, plot);
    const found = { row, time, event: null, mark: null, values: null, count: null };
    const { low, high } = this.range;
    const holds = (tile) => time >= tile.low && time < tile.high;
    const near = ((high - low) / plot) * 3;
    if (row.kind === "thread") {
      const tile = this.events.cover(low, high, plot, { source: row.source, thread: row.thread }).find(holds);
      if (!tile) return found;
      const { arrays, head } = tile.answer;
      const top = row.top + (row.instants && !row.shut ? 12 : 0);
      for (let i = 0; i < arrays.marks.length; i += 1) {
        if (arrays.marks[i] <= time + near / 3 && arrays.marks[i] > time - near * 2.5 && py < top) found.mark = { name: head.names[arrays.mark_node[i]], time: arrays.marks[i] };
      }
      const d = Math.floor((py - top) / EVENT);
      if (d < 0 || d >= (row.shut ? 1 : row.depth)) return found;
      const index = this.#depths(tile.answer, row.depth);
      let [i, end] = visible(arrays.start, arrays.cycles, index[d], index[d + 1], time, time + 1e-3);
      if (i >= end) {
        // Events that are too short to see have a pixel all the same.
        [i, end] = visible(arrays.start, arrays.cycles, index[d], index[d + 1], time - near, time + near);
      }
      if (i < end) found.event = { source: row.source, row: arrays.row[i], name: head.names[arrays.node[i]], start: arrays.start[i], cycles: arrays.cycles[i], count: arrays.count[i] };
    } else if (row.kind === "graph" && !row.shut) {
      found.values = row.series.map((series) => {
        const tile = this.series.cover(low, high, plot, { source: row.source, series: series.i }).find(holds);
        const { time: times, value } = tile?.answer.arrays ?? { time: [], value: [] };
        let best = -1;
        for (let i = 0; i < times.length; i += 1) if (best < 0 || Math.abs(times[i] - time) < Math.abs(times[best] - time)) best = i;
        return [series.name, best < 0 ? NaN : value[best], series.unit];
      });
    } else if (row.kind === "heat" && !row.shut) {
      const tile = this.heat.cover(low, high, plot, { source: row.source, heatmap: row.heatmap }).find(holds);
      if (tile) {
        const { time: times, counts, edges } = tile.answer.arrays;
        const bins = counts.shape[1];
        const bin = Math.min(Math.max(Math.floor((1 - (py - row.top - 2) / (row.height - 4)) * bins), 0), bins - 1);
        let i = times.findLastIndex((t) => t <= time);
        if (i >= 0) found.count = { from: edges[bin], to: edges[bin + 1], count: counts[i * bins + bin] };
      }
    }
    return found;
  }
}

function paintEvents({ head, arrays }, theme, [low, high], depth) {
  const pixels = new Uint32Array(PAINTED * depth);
  const scale = PAINTED / (high - low);
  const colours = head.names.map((name) => packed(theme.series[hashed(name) % theme.series.length]));
  for (let i = 0; i < arrays.start.length; i += 1) {
    if (arrays.depth[i] >= depth) continue;
    const from = Math.min(Math.max(Math.floor((arrays.start[i] - low) * scale), 0), PAINTED - 1);
    const to = Math.min(Math.max(Math.ceil((arrays.start[i] + arrays.cycles[i] - low) * scale), from + 1), PAINTED);
    pixels.fill(colours[arrays.node[i]], arrays.depth[i] * PAINTED + from, arrays.depth[i] * PAINTED + to);
  }
  return canvasOf(pixels, PAINTED, depth);
}

function paintHeat({ arrays }, theme, most, log) {
  const [columns, bins] = arrays.counts.shape;
  const pixels = new Uint32Array(Math.max(columns * bins, 1));
  const colours = theme.heat.map((style) => {
    const [r, g, b] = style.match(/\d+/g).map(Number);
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
  const whole = log ? Math.log1p(most) : most;
  for (let i = 0; i < columns; i += 1) {
    for (let bin = 0; bin < bins; bin += 1) {
      const count = arrays.counts[i * bins + bin];
      const share = (log ? Math.log1p(count) : count) / (whole || 1);
      pixels[(bins - 1 - bin) * columns + i] = count > 0 ? colours[Math.min(Math.round(share * 255), 255)] : 0;
    }
  }
  return canvasOf(pixels, Math.max(columns, 1), Math.max(bins, 1));
}
