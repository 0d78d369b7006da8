// The floor plan: a number for each tile as a colour, tiles where they lie on the chip, IPUs beside each other. A picture of
// one pixel a tile is painted when numbers, colours or the selection change, and drawn magnified.

import { Chart } from "abele/core/chart.js";
import { ColourScale } from "abele/core/colour_scale.js";
import { h } from "abele/core/dom.js";
import { tip, hideTip } from "abele/core/tip.js";
import { LONGEST, marked, numbersOf, rangesText } from "abele/core/tileset.js";

const GAP = 0.06;
const EDGE = 6;
const LABEL = 15;
const LABELS_FROM = 26;
const WORDS_FROM = 52;
const LINES_FROM = 7;
const OUTLINES = 3_000;

/** How many IPUs lie in a row, so that they are largest in a box: those are about square. */
export function acrossFor(num, width, height) {
  let best = 1;
  let size = 0;
  for (let across = 1; across <= num; across += 1) {
    const now = Math.min(width / across, height / Math.ceil(num / across));
    if (now > size * 1.0001) [best, size] = [across, now];
  }
  return best;
}

export class FloorPlan {
  /**
   * @param {object} how
   * @param {string} how.label @param {string} how.name
   * @param {{head: any, arrays: any}} how.floor  the answer to the question "floor"
   * @param {(tiles: string) => void} [how.select]  somebody selected these tiles, as text
   * @param {(tile: number) => Array<any>} how.tell  lines of the tip over a tile
   * @param {(value: number) => string} how.words  a number in words
   * @param {(scale: {low: number|null, high: number|null}) => void} [how.scaled]  somebody moved the ends of the colours
   */
  constructor(how) {
    Object.assign(this, { select: null, scaled: () => {} }, how);
    const { head, arrays } = how.floor;
    this.numTiles = head.num_tiles;
    this.perIpu = Math.max(1, head.tiles_per_ipu);
    this.numIpus = Math.max(1, head.num_ipus);
    [this.columns, this.rows] = [head.columns, head.rows];
    this.column = arrays.column;
    this.row = arrays.row;
    this.at = new Int32Array(this.columns * this.rows).fill(-1);
    for (let i = 0; i < this.column.length; i += 1) this.at[this.row[i] * this.columns + this.column[i]] = i;
    this.values = new Float64Array(0);
    this.marks = null;
    this.anchor = null;
    this.dragged = null;
    this.zoom = 1;
    this.offset = [0, 0];
    this.picture = document.createElement("canvas");
    this.painted = "";
    this.version = 0;
    this.chart = new Chart({ label: how.label, name: how.name, draw: (context, place) => this.#draw(context, place) });
    this.chart.element.classList.add("grows");
    this.scale = new ColourScale({ words: (value) => this.words(value), changed: () => this.#recoloured(), settled: (ends) => this.scaled(ends) });
    this.element = h("div.floorplan", {}, this.chart.element, this.scale.element);
    this.#listen();
  }

  destroy() {
    this.chart.destroy();
    this.scale.destroy();
  }

  redraw() {
    this.chart.redraw();
    this.scale.redraw();
  }

  /**
   * Show these numbers.
   * @param {ArrayLike<number>} values  one for each tile
   * @param {{least?: number, most?: number}} [ends]  what the colours span; the numbers' own ends when left out
   */
  show(values, { least, most } = {}) {
    this.values = values;
    if (least === undefined || most === undefined) {
      let [low, high] = [Infinity, -Infinity];
      for (let i = 0; i < values.length; i += 1) {
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
      }
      least ??= values.length ? low : 0;
      most ??= values.length ? high : 1;
    }
    this.scale.show(values, least, most > least ? most : least + 1);
    this.#recoloured();
  }

  #recoloured() {
    this.version += 1;
    this.redraw();
  }

  /** Mark these tiles: text of ranges, or marks. */
  mark(tiles) {
    this.marks = typeof tiles === "string" ? (tiles ? marked(tiles, this.numTiles) : null) : tiles;
    this.version += 1;
    this.chart.redraw();
  }

  whole() {
    this.zoom = 1;
    this.offset = [0, 0];
    this.chart.redraw();
  }

  /** Where IPUs lie: how many in a row, and the size and place of one. */
  layout(width = this.chart.width, height = this.chart.height) {
    const across = acrossFor(this.numIpus, width, height);
    const down = Math.ceil(this.numIpus / across);
    const label = this.numIpus > 1 && Math.min(width / across, height / down) > LABELS_FROM ? LABEL : 0;
    const side = Math.max(4, Math.min((width - EDGE) / across, (height - EDGE) / down - label) * (1 - GAP)) * this.zoom;
    const pitch = side * (1 + GAP);
    const [x, y] = [pitch * across - side * GAP, (pitch + label) * down - side * GAP];
    return { across, side, pitch, label, left: (width - x) / 2 + this.offset[0], top: (height - y) / 2 + this.offset[1] };
  }

  /** The box of an IPU on the chart. */
  box(ipu, place = this.layout()) {
    const { across, side, pitch, label, left, top } = place;
    return { x: left + (ipu % across) * pitch, y: top + Math.floor(ipu / across) * (pitch + label) + label, side };
  }

  /** The tile under a point of the chart, -1 for none. */
  tileAt(x, y) {
    const place = this.layout();
    for (let ipu = 0; ipu < this.numIpus; ipu += 1) {
      const box = this.box(ipu, place);
      if (x < box.x || y < box.y || x >= box.x + box.side || y >= box.y + box.side) continue;
      const at = this.at[Math.floor(((y - box.y) / box.side) * this.rows) * this.columns + Math.floor(((x - box.x) / box.side) * this.columns)];
      const tile = at < 0 ? -1 : ipu * this.perIpu + at;
      return tile < this.numTiles ? tile : -1;
    }
    return -1;
  }

  /** Marks of the tiles in a rectangle of the chart. */
  within(x0, y0, x1, y1) {
    const place = this.layout();
    const found = new Uint8Array(this.numTiles);
    for (let ipu = 0; ipu < this.numIpus; ipu += 1) {
      const box = this.box(ipu, place);
      const column = (x) => Math.floor(((x - box.x) / box.side) * this.columns);
      const row = (y) => Math.floor(((y - box.y) / box.side) * this.rows);
      for (let r = Math.max(0, row(y0)); r <= Math.min(this.rows - 1, row(y1)); r += 1) {
        for (let c = Math.max(0, column(x0)); c <= Math.min(this.columns - 1, column(x1)); c += 1) {
          const at = this.at[r * this.columns + c];
          if (at >= 0 && ipu * this.perIpu + at < this.numTiles) found[ipu * this.perIpu + at] = 1;
        }
      }
    }
    return found;
  }

  #paint(theme) {
    const key = `${this.version} ${theme.dark}`;
    if (key === this.painted) return;
    this.painted = key;
    // IPUs one below the other, a pixel a tile.
    this.picture.width = this.columns;
    this.picture.height = this.rows * this.numIpus;
    const pen = this.picture.getContext("2d");
    const image = pen.createImageData(this.picture.width, this.picture.height);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = heat32(theme);
    const [low, high] = this.scale.ends;
    const scale = 255 / Math.max(high - low, 1e-12);
    const size = this.columns * this.rows;
    for (let tile = 0; tile < this.values.length; tile += 1) {
      const ipu = Math.floor(tile / this.perIpu);
      const at = tile - ipu * this.perIpu;
      const step = Math.min(Math.max(Math.round((this.values[tile] - low) * scale), 0), 255);
      pixels[ipu * size + this.row[at] * this.columns + this.column[at]] = colours[step];
    }
    pen.putImageData(image, 0, 0);
  }

  #draw(context, { width, height, theme }) {
    this.#paint(theme);
    const place = this.layout(width, height);
    context.font = theme.font;
    context.textBaseline = "bottom";
    context.textAlign = "left";
    context.imageSmoothingEnabled = false;
    const [wide, tall] = [place.side / this.columns, place.side / this.rows];
    for (let ipu = 0; ipu < this.numIpus; ipu += 1) {
      const box = this.box(ipu, place);
      if (box.x > width || box.y > height || box.x + box.side < 0 || box.y + box.side < 0) continue;
      context.drawImage(this.picture, 0, ipu * this.rows, this.columns, this.rows, box.x, box.y, box.side, box.side);
      context.strokeStyle = theme.rule;
      context.lineWidth = 1;
      context.strokeRect(box.x - 0.5, box.y - 0.5, box.side + 1, box.side + 1);
      if (place.label) {
        context.fillStyle = theme.dim;
        context.fillText(box.side >= WORDS_FROM ? `IPU ${ipu}` : String(ipu), box.x, box.y - 1);
      }
      if (Math.min(wide, tall) >= LINES_FROM) this.#grid(context, theme, box, wide, tall);
    }
    this.#marks(context, theme, place, wide, tall);
    if (this.dragged) {
      const [x0, y0, x1, y1] = this.dragged;
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.15;
      context.fillRect(x0, y0, x1 - x0, y1 - y0);
      context.globalAlpha = 1;
      context.strokeStyle = theme.accent;
      context.strokeRect(x0 + 0.5, y0 + 0.5, x1 - x0, y1 - y0);
    }
  }

  #grid(context, theme, box, wide, tall) {
    context.fillStyle = theme.panel;
    for (let c = 1; c < this.columns; c += 1) context.fillRect(box.x + c * wide - 0.5, box.y, c % 2 ? 0.5 : 1.5, box.side);
    for (let r = 1; r < this.rows; r += 1) context.fillRect(box.x, box.y + r * tall - 0.5, box.side, 0.5);
  }

  #marks(context, theme, place, wide, tall) {
    if (!this.marks) return;
    const numbers = numbersOf(this.marks);
    if (!numbers.length || numbers.length === this.numTiles) return;
    context.strokeStyle = theme.bad;
    context.lineWidth = wide > 8 ? 2 : 1.25;
    if (numbers.length > OUTLINES) context.globalAlpha = 0.5;
    context.beginPath();
    // Edges between what is marked and what is not: a region has one outline.
    const on = (ipu, c, r) => {
      if (c < 0 || r < 0 || c >= this.columns || r >= this.rows) return false;
      const at = this.at[r * this.columns + c];
      return at >= 0 && this.marks[ipu * this.perIpu + at] === 1;
    };
    for (const tile of numbers) {
      const ipu = Math.floor(tile / this.perIpu);
      const [c, r] = [this.column[tile - ipu * this.perIpu], this.row[tile - ipu * this.perIpu]];
      const box = this.box(ipu, place);
      const [x, y] = [box.x + c * wide, box.y + r * tall];
      if (!on(ipu, c - 1, r)) { context.moveTo(x, y); context.lineTo(x, y + tall); }
      if (!on(ipu, c + 1, r)) { context.moveTo(x + wide, y); context.lineTo(x + wide, y + tall); }
      if (!on(ipu, c, r - 1)) { context.moveTo(x, y); context.lineTo(x + wide, y); }
      if (!on(ipu, c, r + 1)) { context.moveTo(x, y + tall); context.lineTo(x + wide, y + tall); }
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  #listen() {
    const { canvas } = this.chart;
    let from = null;
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", (event) => {
      const [x, y] = point(event);
      const before = this.layout();
      const relative = [(x - before.left) / before.side, (y - before.top) / before.side];
      const zoom = Math.min(Math.max(this.zoom * Math.exp(-Math.max(-200, Math.min(200, event.deltaY)) * 0.002), 1), 400);
      if (zoom === 1) {
        this.whole();
      } else {
        this.zoom = zoom;
        const after = this.layout();
        this.offset[0] += x - relative[0] * after.side - after.left;
        this.offset[1] += y - relative[1] * after.side - after.top;
      }
      this.chart.redraw();
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      const moves = event.button === 1 || event.altKey;
      if (event.button > 1) return;
      from = { at: point(event), moves, offset: [...this.offset], moved: false };
      canvas.setPointerCapture(event.pointerId);
      hideTip();
      event.preventDefault();
      canvas.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = point(event);
      if (!from) {
        const tile = this.tileAt(x, y);
        tip(event, tile < 0 ? null : this.tell(tile));
        return;
      }
      if (Math.abs(x - from.at[0]) + Math.abs(y - from.at[1]) > 3) from.moved = true;
      if (!from.moved) return;
      if (from.moves) this.offset = [from.offset[0] + x - from.at[0], from.offset[1] + y - from.at[1]];
      else this.dragged = [Math.min(x, from.at[0]), Math.min(y, from.at[1]), Math.max(x, from.at[0]), Math.max(y, from.at[1])];
      this.chart.redraw();
    });
    const end = (event) => {
      if (!from) return;
      const { moved, moves, at } = from;
      from = null;
      const box = this.dragged;
      this.dragged = null;
      this.chart.redraw();
      if (moves || event.type === "pointercancel" || !this.select) return;
      if (moved && box) this.#chosen(this.within(...box), event.ctrlKey || event.metaKey || event.shiftKey, box);
      else if (!moved) this.#clicked(this.tileAt(...at), event);
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => hideTip());
    canvas.addEventListener("dblclick", () => this.whole());
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (!(event.key in moves) || !this.select) return;
      const tile = Math.max(this.anchor ?? 0, 0);
      const ipu = Math.floor(tile / this.perIpu);
      const [dx, dy] = moves[event.key];
      const [c, r] = [this.column[tile - ipu * this.perIpu] + dx, this.row[tile - ipu * this.perIpu] + dy];
      const at = c < 0 || r < 0 || c >= this.columns || r >= this.rows ? -1 : this.at[r * this.columns + c];
      if (at >= 0 && ipu * this.perIpu + at < this.numTiles) {
        this.anchor = ipu * this.perIpu + at;
        this.select(String(this.anchor));
      }
      event.preventDefault();
      event.stopPropagation();
    });
  }

  #clicked(tile, event) {
    if (tile < 0) {
      this.select("");
      return;
    }
    if (event.shiftKey && this.anchor !== null) {
      this.select(`${Math.min(tile, this.anchor)}-${Math.max(tile, this.anchor)}`);
      return;
    }
    this.anchor = tile;
    if (event.ctrlKey || event.metaKey) {
      const marks = this.marks ? this.marks.slice() : new Uint8Array(this.numTiles);
      marks[tile] = marks[tile] ? 0 : 1;
      this.#chosen(marks, false);
    } else {
      this.select(String(tile));
    }
  }

  #chosen(marks, more, box = null) {
    if (more && this.marks) for (let i = 0; i < marks.length; i += 1) marks[i] |= this.marks[i];
    const text = rangesText(numbersOf(marks));
    this.select(text.length > LONGEST && box && !more ? this.areas(...box) : text);
  }

  /** A rectangle of the chart in words that the server knows: columns and rows of each IPU. */
  areas(x0, y0, x1, y1) {
    const place = this.layout();
    const terms = [];
    for (let ipu = 0; ipu < this.numIpus; ipu += 1) {
      const box = this.box(ipu, place);
      const column = (x) => Math.floor(((x - box.x) / box.side) * this.columns);
      const row = (y) => Math.floor(((y - box.y) / box.side) * this.rows);
      const ends = [Math.max(0, column(x0)), Math.max(0, row(y0)), Math.min(this.columns - 1, column(x1)), Math.min(this.rows - 1, row(y1))];
      if (ends[0] <= ends[2] && ends[1] <= ends[3]) terms.push(`area ${ipu} ${ends.join(" ")}`);
    }
    return terms.join(", ");
  }
}

const kept = new Map();

/** The colours of a theme as pixels, little-endian. */
function heat32(theme) {
  if (!kept.has(theme.dark)) {
    kept.set(theme.dark, Uint32Array.from(theme.heat, (colour) => {
      const [r, g, b] = colour.match(/\d+/g).map(Number);
      return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    }));
  }
  return kept.get(theme.dark);
}
