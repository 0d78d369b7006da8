// Lanes of sync groups and streams: what each does when, flat or as flames of names.

import { fitted } from "abele/core/format.js";
import { font, hint, isFirst, write } from "abele/views/timeline/labels.js";
import { Mosaic } from "abele/views/timeline/mosaic.js";
import { Pictures, canvasOf, hashed, packed, paintAlpha, paintShares, sharesOfSpans, tallOf } from "abele/views/timeline/paint.js";

const AXIS = 20;
const GAP = 5;
const STRIP = 15;
const ROW = 15;
const PAINTED = 1024;
const MOST_DRAWN = 1500;

/** Heights of lanes: equal shares of the room within limits. */
export function laneHeights(count, room, shaped) {
  const each = Math.min(Math.max(Math.floor(room / Math.max(count, 1)) - GAP, 18), 72);
  return Array.from({ length: count }, (_, i) => (shaped[i] ? shaped[i] : each));
}

/** First and last of the ascending bars from `first` to `last` that reach into a window. */
export function visible(start, length, first, last, low, high) {
  let [a, b] = [first, last];
  while (a < b) {
    const middle = (a + b) >> 1;
    if (start[middle] + length[middle] <= low) a = middle + 1;
    else b = middle;
  }
  const begin = a;
  b = last;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (start[middle] < high) a = middle + 1;
    else b = middle;
  }
  return [begin, a];
}

/** Where each lane, or depth, begins in an ascending column; one more than there are. */
function bounds(column, count) {
  const found = new Int32Array(count + 1);
  for (let i = 0; i < column.length; i += 1) if (column[i] < count) found[column[i] + 1] = i + 1;
  for (let i = 1; i <= count; i += 1) found[i] = Math.max(found[i], found[i - 1]);
  return found;
}

export class LanesPicture {
  /**
   * @param {import("abele/core/context.js").Context} context
   * @param {any} outline  the answer to timeline.outline
   * @param {import("abele/core/range.js").Range} range
   * @param {() => void} redraw
   * @param {() => {shape: string, bubbles: boolean, critical: boolean, selected: any, window: [number, number]|null, seconds: number}} how
   */
  constructor(context, outline, range, redraw, how) {
    Object.assign(this, { context, outline, range, how });
    this.scroll = 0;
    this.tall = 0;
    const program = () => ({ program: context.program });
    const common = { context, params: program, most: outline.total, loaded: redraw };
    this.lanes = new Mosaic({ ...common, question: "timeline.lanes" });
    this.flames = new Mosaic({ ...common, question: "timeline.flame" });
    this.blocks = new Mosaic({ ...common, question: "timeline.blocks" });
    this.colours = outline.parts;
    this.pictures = new Pictures((answer, theme, window) => this.#paintLanes(answer, theme, window));
    this.flamePictures = new Pictures((answer, theme, window, depth) => paintFlame(answer, theme, window, depth, this.colours));
    this.indexes = new WeakMap();
    this.depth = 0;
    this.redraw = redraw;
    this.hasBlocks = outline.lanes.map((lane) => lane.blocks.length > 0);
  }

  get left() {
    return 132;
  }

  /** Where each lane lies, top and height without the strip of blocks. */
  places(height) {
    const flame = this.how().shape === "flame";
    if (flame && !this.depth) {
      this.depth = 4;
      this.context.ask("timeline.depth").then(({ head }) => {
        this.depth = Math.max(head.depth, 1);
        this.indexes = new WeakMap();
        this.redraw();
      }, () => {});
    }
    const room = height - AXIS - this.outline.lanes.filter((_, i) => this.hasBlocks[i]).length * STRIP;
    const shaped = this.outline.lanes.map((lane) => (flame && lane.group >= 0 | this.outline.made_of === "steps" ? ROW * this.depth + 12 : 0));
    const heights = laneHeights(this.outline.lanes.length, flame ? Math.min(room, this.outline.lanes.length * 24) : room, shaped);
    let y = AXIS + 2;
    const found = heights.map((h, i) => {
      const place = { top: y, height: h, strip: this.hasBlocks[i] ? STRIP : 0, flame: shaped[i] > 0 };
      y += h + place.strip + GAP;
      return place;
    });
    this.tall = y - AXIS;
    this.scroll = Math.min(Math.max(this.scroll, 0), Math.max(this.tall - (height - AXIS), 0));
    return found.map((place) => ({ ...place, top: place.top - this.scroll }));
  }

  draw(context, { width, height, theme }) {
    const plot = width - this.left - 8;
    const { low, high } = this.range;
    const how = this.how();
    const places = this.places(height);
    const x = (value) => this.left + ((value - low) / (high - low)) * plot;
    const shown = this.lanes.cover(low, high, plot);
    const runs = this.hasBlocks.some(Boolean) ? this.blocks.cover(low, high, plot) : [];
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    places.forEach((place, lane) => {
      if (place.top > height || place.top + place.height + place.strip < AXIS) return;
      this.#ground(context, place, lane, x, plot, theme, how);
    });
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, plot, height - AXIS);
    context.clip();
    this.#flat(context, shown, places, height, x, plot, theme, how);
    places.forEach((place, lane) => {
      if (place.flame && place.top < height && place.top + place.height > AXIS) this.#flame(context, place, lane, x, plot, theme);
    });
    const strips = [];
    for (const tile of runs) this.#strips(context, tile, places, x, theme, strips);
    context.font = font(10.5);
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = theme.dark ? "#0b0e12" : "#ffffff";
    for (const [text, number, several, a, b, y] of strips) {
      context.fillText(fitted(context, stripLabel(context, text, number, several, b - a - 4), b - a - 4), a + 2, y);
    }
    this.#selection(context, places, x, height, theme, how);
    context.restore();
    this.#labels(context, places, height, theme);
    context.restore();
    if (this.tall > height - AXIS) {
      const part = (height - AXIS) / this.tall;
      context.fillStyle = theme.dim;
      context.globalAlpha = 0.4;
      context.fillRect(width - 5, AXIS + (this.scroll / this.tall) * (height - AXIS), 4, part * (height - AXIS));
      context.globalAlpha = 1;
    }
  }

  /** What lies below a lane: where it waits, and where the report does not say. */
  #ground(context, place, lane, x, plot, theme, how) {
    const [a, b] = [this.left, this.left + plot];
    const high = place.flame ? 10 : place.height;
    const bubbles = how.bubbles && this.outline.lanes[lane].group >= 0;
    context.fillStyle = bubbles ? theme.warn : theme.parts.idle;
    context.globalAlpha = bubbles ? 0.35 : 0.55;
    context.fillRect(a, place.top, Math.max(Math.min(x(this.outline.total), b) - a, 0), high);
    context.globalAlpha = 1;
    const { known, end } = this.outline.lanes[lane];
    if (known >= end) return;
    const [from, to] = [Math.max(x(known), a), Math.min(x(end), b)];
    if (to <= from) return;
    context.save();
    context.beginPath();
    context.rect(from, place.top, to - from, high);
    context.clip();
    context.fillStyle = theme.back;
    context.fillRect(from, place.top, to - from, high);
    context.strokeStyle = theme.dim;
    context.globalAlpha = 0.5;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = from - high; at < to; at += 7) {
      context.moveTo(at, place.top + high);
      context.lineTo(at + high, place.top);
    }
    context.stroke();
    context.restore();
  }

  #index(answer) {
    let found = this.indexes.get(answer);
    if (!found) {
      found = bounds(answer.arrays.lane, this.outline.lanes.length);
      this.indexes.set(answer, found);
    }
    return found;
  }

  #flat(context, shown, places, height, x, plot, theme, how) {
    const { low, high } = this.range;
    const ranges = [];
    let drawn = 0;
    for (const tile of shown) {
      if (tile.answer.head.mode !== "spans") continue;
      const index = this.#index(tile.answer);
      const { start, cycles } = tile.answer.arrays;
      tile.seen = places.map((_, lane) => visible(start, cycles, index[lane], index[lane + 1], Math.max(low, tile.low), Math.min(high, tile.high)));
      drawn += tile.seen.reduce((sum, [a, b]) => sum + b - a, 0);
      ranges.push(tile);
    }
    const labels = [];
    context.imageSmoothingEnabled = false;
    const each = tallOf(this.outline.lanes.length);
    for (const tile of shown) {
      if (tile.seen && drawn <= MOST_DRAWN) {
        places.forEach((place, lane) => {
          if (place.top < height && place.top + place.height > AXIS) this.#spans(context, tile, lane, place, x, theme, how, labels);
        });
        continue;
      }
      const { canvas, alpha } = this.pictures.of(tile.answer, theme, tile.own);
      const [a, b] = tile.own;
      const from = ((tile.low - a) / (b - a)) * canvas.width;
      const wide = ((tile.high - tile.low) / (b - a)) * canvas.width;
      places.forEach((place, lane) => {
        const tall = place.flame ? 10 : place.height;
        if (place.top > height || place.top + tall < AXIS) return;
        context.drawImage(canvas, from, lane * each, wide, each, x(tile.low), place.top, x(tile.high) - x(tile.low), tall);
        if (how.critical) context.drawImage(alpha, from, lane, wide, 1, x(tile.low), place.top, x(tile.high) - x(tile.low), 4);
      });
    }
    write(context, labels, theme);
  }

  #spans(context, tile, lane, place, x, theme, how, labels) {
    const { start, cycles, cuts, part, step, critical } = tile.answer.arrays;
    const [first, last] = tile.seen[lane];
    const tall = place.flame ? 10 : place.height;
    const [left, right] = [Math.max(Math.round(x(tile.low)), this.left), Math.min(Math.round(x(tile.high)), x(this.range.high))];
    for (let i = first; i < last; i += 1) {
      let from = Math.max(x(start[i]), left);
      for (let slot = 0; slot < 4; slot += 1) {
        const to = Math.min(Math.max(x(start[i] + cuts[i * 4 + slot]), left), right);
        if (to > from) {
          context.fillStyle = theme.parts[this.colours[part[i * 4 + slot]]];
          context.fillRect(from, place.top, to - from, tall);
        }
        from = Math.max(to, from);
      }
      const [a, b] = [Math.max(x(start[i]), left), Math.min(x(start[i] + cycles[i]), right)];
      if (how.critical && critical[i] > 0) {
        context.globalAlpha = critical[i];
        context.fillStyle = theme.bad;
        context.fillRect(a, place.top, Math.max(b - a, 0.5), 4);
        context.globalAlpha = 1;
      }
      const ends = start[i] + cycles[i] <= tile.high;
      if (ends && b - a > 6) {
        context.fillStyle = theme.panel;
        context.fillRect(b - 1, place.top, 1, tall);
      }
      if (!place.flame && tall >= 16 && isFirst(tile, start[i], this.range.low)) {
        const name = tile.answer.head.names[step[i]] ?? "";
        const end = Math.min(x(start[i] + cycles[i]), x(this.range.high));
        if (end - a > 34) labels.push([name.slice(name.lastIndexOf("/") + 1), a, end, place.top + tall / 2]);
      }
    }
  }

  #paintLanes(answer, theme, window) {
    const lanes = this.outline.lanes.length;
    const parts = this.colours.map((part) => packed(theme.parts[part]));
    const { arrays, head } = answer;
    if (head.mode === "shares") {
      const columns = arrays.critical.shape[1];
      // What the report does not say is clear: the hatching below shows.
      const canvas = paintShares(arrays.shares, lanes, columns, [...parts, 0]);
      return { canvas, alpha: paintAlpha(arrays.critical, lanes, columns, theme.bad) };
    }
    const shares = sharesOfSpans(arrays, window, lanes, PAINTED, parts.length);
    const scale = PAINTED / (window[1] - window[0]);
    const critical = new Uint8Array(lanes * PAINTED);
    for (let i = 0; i < arrays.start.length; i += 1) {
      const from = Math.max(Math.floor((arrays.start[i] - window[0]) * scale), 0);
      const to = Math.min(Math.ceil((arrays.start[i] + arrays.cycles[i] - window[0]) * scale), PAINTED);
      critical.fill(Math.round(arrays.critical[i] * 255), arrays.lane[i] * PAINTED + from, arrays.lane[i] * PAINTED + Math.max(to, from));
    }
    return { canvas: paintShares(shares, lanes, PAINTED, parts), alpha: paintAlpha(critical, lanes, PAINTED, theme.bad) };
  }

  #flame(context, place, lane, x, plot, theme) {
    const { low, high } = this.range;
    const { depth } = this;
    const top = place.top + 12;
    const tiles = this.flames.cover(low, high, plot, { lane });
    for (const tile of tiles) {
      const { start, cycles } = tile.answer.arrays;
      if (!this.indexes.has(tile.answer)) this.indexes.set(tile.answer, bounds(tile.answer.arrays.depth, depth));
      const index = this.indexes.get(tile.answer);
      tile.seen = Array.from({ length: depth }, (_, d) => visible(start, cycles, index[d], index[d + 1], Math.max(low, tile.low), Math.min(high, tile.high)));
    }
    if (tiles.some((tile) => tile.answer.head.beyond)) hint(context, theme, this.left + plot / 2, top + ROW * 2);
    const many = tiles.reduce((sum, tile) => sum + tile.seen.reduce((s, [a, b]) => s + b - a, 0), 0) > MOST_DRAWN;
    const labels = [];
    for (const tile of tiles) {
      const { arrays, head } = tile.answer;
      const [left, right] = [Math.max(Math.round(x(tile.low)), this.left), Math.min(Math.round(x(tile.high)), this.left + plot)];
      if (many) {
        const canvas = this.flamePictures.of(tile.answer, theme, tile.own, depth);
        const [a, b] = tile.own;
        const from = ((tile.low - a) / (b - a)) * canvas.width;
        const wide = ((tile.high - tile.low) / (b - a)) * canvas.width;
        context.drawImage(canvas, from, 0, wide, depth, x(tile.low), top, x(tile.high) - x(tile.low), depth * ROW);
      }
      for (let d = 0; d < depth; d += 1) {
        const [first, last] = tile.seen[d];
        for (let i = first; i < last; i += 1) {
          const [a, b] = [Math.max(x(arrays.start[i]), left), Math.min(x(arrays.start[i] + arrays.cycles[i]), right)];
          if (!many) {
            context.fillStyle = flameColour(tile.answer, i, theme, this.colours);
            const gap = b - a > 3 && arrays.start[i] + arrays.cycles[i] <= tile.high ? 1 : 0;
            context.fillRect(a, top + d * ROW, Math.max(b - a - gap, 0.5), ROW - 1);
          }
          const end = Math.min(x(arrays.start[i] + arrays.cycles[i]), this.left + plot);
          if (end - a > 26 && isFirst(tile, arrays.start[i], low)) labels.push([head.names[arrays.node[i]], a, end, top + d * ROW + ROW / 2 - 0.5]);
        }
      }
    }
    write(context, labels, theme);
  }

  #strips(context, tile, places, x, theme, labels) {
    const { lane, start, cycles, name, number, count } = tile.answer.arrays;
    const [left, right] = [Math.max(x(tile.low), this.left), x(tile.high)];
    for (let i = 0; i < lane.length; i += 1) {
      const place = places[lane[i]];
      const [a, b] = [Math.max(x(start[i]), left), Math.min(x(start[i] + cycles[i]), right)];
      if (b <= a) continue;
      const text = tile.answer.head.names[name[i]];
      const y = place.top + place.height + 1;
      context.fillStyle = theme.series[hashed(text) % theme.series.length];
      context.globalAlpha = 0.85;
      context.fillRect(a, y, Math.max(b - a - (b - a > 3 ? 1 : 0), 0.5), STRIP - 2);
      context.globalAlpha = 1;
      const end = Math.min(x(start[i] + cycles[i]), x(this.range.high));
      if (end - a > 20 && isFirst(tile, start[i], this.range.low)) labels.push([text, number[i], count[i], a, end, y + (STRIP - 2) / 2]);
    }
  }

  #selection(context, places, x, height, theme, { window, selected }) {
    if (window) {
      const [a, b] = window.map(x);
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.14;
      context.fillRect(a, AXIS, b - a, height - AXIS);
      context.globalAlpha = 1;
      context.fillRect(a - 0.5, AXIS, 1, height);
      context.fillRect(b - 0.5, AXIS, 1, height);
    }
    if (selected && places[selected.lane]) {
      const place = places[selected.lane];
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      const [a, b] = [x(selected.start), x(selected.start + selected.cycles)];
      context.strokeRect(a, place.top - 1, Math.max(b - a, 2), (place.flame ? 10 : place.height) + 2);
    }
  }

  #labels(context, places, height, theme) {
    context.textAlign = "left";
    context.textBaseline = "middle";
    places.forEach((place, lane) => {
      if (place.top > height || place.top + place.height < AXIS) return;
      const { name, tiles, blocks } = this.outline.lanes[lane];
      const middle = place.flame ? place.top + 6 : place.top + place.height / 2;
      const two = !place.flame && place.height >= 32 && (tiles || blocks.length);
      context.font = font(12);
      context.fillStyle = theme.ink;
      context.fillText(fitted(context, name, this.left - 16), 8, two ? middle - 7 : middle);
      if (two || place.flame) {
        context.font = font(11);
        context.fillStyle = theme.dim;
        const note = blocks.length ? blocks.slice(0, 4).join(", ") : tiles ? `${tiles.toLocaleString("en-US")} tiles` : "";
        context.fillText(fitted(context, note, this.left - 16), 8, middle + (place.flame ? 15 : 8));
      }
    });
  }

  /**
   * What lies at a place.
   * @returns {{lane: number, cycle: number, span: {step: number, start: number, cycles: number, name: string}|null, shares: any, flame: any, block: any}|null}
   */
  at(px, py, width, height) {
    if (py < AXIS || px < this.left || px > width - 8) return null;
    const plot = width - this.left - 8;
    const cycle = this.range.value(px - this.left, plot);
    const lane = this.places(height).findIndex((p) => py >= p.top && py < p.top + p.height + p.strip);
    if (lane < 0) return { lane: -1, cycle };
    const place = this.places(height)[lane];
    const { low, high } = this.range;
    const found = { lane, cycle, span: null, shares: null, flame: null, block: null };
    const holds = (tile) => cycle >= tile.low && cycle < tile.high;
    const tile = this.lanes.cover(low, high, plot).find(holds);
    if (tile?.answer.head.mode === "spans") {
      const { start, cycles, step } = tile.answer.arrays;
      const index = this.#index(tile.answer);
      const [i, end] = visible(start, cycles, index[lane], index[lane + 1], cycle, cycle + 1e-6);
      if (i < end) found.span = { step: step[i], start: start[i], cycles: cycles[i], name: tile.answer.head.names[step[i]] };
    } else if (tile) {
      const { shares } = tile.answer.arrays;
      const [, columns, parts] = shares.shape;
      const column = Math.min(Math.floor(((cycle - tile.own[0]) / (tile.own[1] - tile.own[0])) * columns), columns - 1);
      const from = (lane * columns + column) * parts;
      found.shares = [...this.colours, "not recorded"].map((part, n) => [part, shares[from + n] / 255]);
    }
    if (place.flame && py > place.top + 12) {
      const depth = Math.floor((py - place.top - 12) / ROW);
      const own = this.flames.cover(low, high, plot, { lane }).find(holds);
      if (own) {
        const { start, cycles, step, node, count } = own.answer.arrays;
        const index = this.indexes.get(own.answer) ?? bounds(own.answer.arrays.depth, this.depth);
        const [i, end] = visible(start, cycles, index[depth] ?? 0, index[depth + 1] ?? 0, cycle, cycle + 1e-6);
        if (i < end) found.flame = { step: step[i], start: start[i], cycles: cycles[i], name: own.answer.head.names[node[i]], count: count[i], depth };
      }
    }
    if (place.strip && py >= place.top + place.height) {
      const own = this.blocks.cover(low, high, plot).find(holds);
      const { lane: lanes, start, cycles, name, number, count } = own?.answer.arrays ?? { lane: [] };
      for (let i = 0; i < lanes.length; i += 1) {
        if (lanes[i] === lane && start[i] <= cycle && cycle < start[i] + cycles[i]) {
          found.block = { name: own.answer.head.names[name[i]], number: number[i], start: start[i], cycles: cycles[i], count: count[i] };
        }
      }
    }
    return found;
  }
}

/** The colour of a bar of a flame: steps by what they are, names around them by name. */
function flameColour({ arrays, head }, i, theme, colours) {
  return arrays.inner[i] ? theme.series[hashed(head.names[arrays.node[i]]) % theme.series.length] : theme.parts[colours[arrays.part[i]]];
}

/** What is written on the run of a block: its name and number, or the number in its name where there is no room. */
function stripLabel(context, text, number, several, room) {
  const whole = several > 1 ? `${text} and ${several - 1} more` : number ? `${text}:${number}` : text;
  const short = /(\d+)$/.exec(text);
  return short && context.measureText(whole).width > room ? `${short[1]}${number && several <= 1 ? `:${number}` : ""}` : whole;
}

function paintFlame(answer, theme, [low, high], depth, colours) {
  const pixels = new Uint32Array(PAINTED * depth);
  const { arrays } = answer;
  const scale = PAINTED / (high - low);
  for (let i = 0; i < arrays.start.length; i += 1) {
    if (arrays.depth[i] >= depth) continue;
    const from = Math.max(Math.floor((arrays.start[i] - low) * scale), 0);
    const to = Math.min(Math.max(Math.ceil((arrays.start[i] + arrays.cycles[i] - low) * scale), from + 1), PAINTED);
    pixels.fill(packed(flameColour(answer, i, theme, colours)), arrays.depth[i] * PAINTED + from, arrays.depth[i] * PAINTED + to);
  }
  return canvasOf(pixels, PAINTED, depth);
}
