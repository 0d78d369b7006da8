// Any metric by tile and superstep, with the sums of rows and columns at its sides: zoomed in two directions, painted square by
// square from answers at the level that the screen can show.

import { Chart } from "abele/core/chart.js";
import { facts, lastScopes, link, listing, part } from "abele/core/detail.js";
import { fill, h, settled } from "abele/core/dom.js";
import { bytes, count, fitted, marks, ranges, short } from "abele/core/format.js";
import { choice, dropdown, empty, failure, panel } from "abele/core/parts.js";
import { Range } from "abele/core/range.js";
import { PARTS, theme } from "abele/core/theme.js";
import { hideTip, tip } from "abele/core/tip.js";
import { bars, greatest, levelFor, tileAt, toned } from "abele/views/matrix/cells.js";

const METRICS = [["compute_cycles", "compute cycles"], ["sent_bytes", "sent"], ["received_bytes", "received"], ["idle_cycles", "waiting"], ["memory_bytes", "memory"]];
const ORDERS = [["number", "number"], ["size", "largest sum"], ["physical", "place"]];
const SCALES = [["log", "log"], ["linear", "linear"]];
const EDGE = { left: 122, right: 8, top: 62, bottom: 20 };
const SUMS = 52;
const KEPT = 160;
const PAGE = 200;
const REST = 30;

export function mount(context, place) {
  const view = new MatrixView(context);
  fill(place, view.element);
  return {
    update: (changed) => view.update(changed),
    destroy: () => view.destroy(),
    charts: [view.chart],
    commands: [
      ...METRICS.map(([name, title]) => ({ title: `Matrix of ${title}`, run: () => context.state.set({ "matrix.metric": name === "compute_cycles" ? null : name }) })),
      { title: "Show all of the matrix", run: () => view.whole() },
    ],
  };
}

class MatrixView {
  constructor(context) {
    Object.assign(this, { context, axes: null, asked: 0, squares: new Map(), named: new Set() });
    const { state } = context;
    this.columns = new Range(0, 1, 1);
    this.rows = new Range(0, 1, 1);
    this.chart = new Chart({ label: "Tiles by supersteps", name: "matrix", draw: (c, p) => this.#draw(c, p) });
    this.chart.element.classList.add("fill");
    const remember = settled(() => this.axes && state.set({ "matrix.columns": this.#window(this.columns), "matrix.rows": this.#window(this.rows) }), 200);
    for (const range of [this.columns, this.rows]) {
      range.addEventListener("change", () => {
        this.moved = performance.now();
        this.chart.redraw();
        remember();
        // What is asked for while it moves is seldom seen: finer squares wait until it rests.
        clearTimeout(this.rest);
        this.rest = setTimeout(() => this.chart.redraw(), REST);
      });
    }
    this.#steer();
    this.note = h("span.dim", { role: "status" });
    this.metric = dropdown("Metric", METRICS, state.get("matrix.metric", "compute_cycles"), (m) => state.set({ "matrix.metric": m === "compute_cycles" ? null : m }));
    this.order = dropdown("Order of tiles", ORDERS, state.get("matrix.order", "number"), (o) => state.set({ "matrix.order": o === "number" ? null : o, "matrix.rows": null }));
    this.scale = choice("Colours", SCALES, state.get("matrix.scale", "log"), (s) => state.set({ "matrix.scale": s === "log" ? null : s }));
    this.details = h("div.told", { "aria-live": "polite" });
    this.element = h("div.beside.wide", {},
      panel("Tiles by supersteps", [h("div.bar", {}, this.metric, h("label.dim", {}, "tiles by ", this.order), this.scale, this.note, h("span.grow"),
        h("button.small", { onclick: () => this.whole(), title: "Show all (0)" }, "fit")), this.chart.element]),
      panel("Details", this.details));
    context.keys.steer({
      zoom: (f) => {
        this.columns.zoom(f);
        this.rows.zoom(f);
      },
      move: (p) => this.columns.move(p),
      whole: () => this.whole(),
    });
    this.#load(true);
  }

  destroy() {
    clearTimeout(this.rest);
    this.asked += 1;
    this.chart.destroy();
  }

  whole() {
    this.columns.whole();
    this.rows.whole();
  }

  update(changed) {
    if (["matrix.metric", "matrix.order", "program", "reports"].some((n) => changed.has(n))) {
      this.metric.value = this.context.state.get("matrix.metric", "compute_cycles");
      this.order.value = this.context.state.get("matrix.order", "number");
      this.#load(false);
      return;
    }
    if (changed.has("theme") || changed.has("matrix.scale")) {
      this.scale.show(this.context.state.get("matrix.scale", "log"));
      for (const square of this.squares.values()) square.picture = null;
    }
    if (changed.has("tiles") || changed.has("step") || changed.has("unit")) this.#tell();
    this.chart.redraw();
  }

  get asking() {
    const { state } = this.context;
    return { metric: state.get("matrix.metric", "compute_cycles"), order: state.get("matrix.order", "number"), program: this.context.program };
  }

  #window(range) {
    return range.low === range.least && range.high === range.most ? null : `${range.low.toFixed(1)}-${range.high.toFixed(1)}`;
  }

  async #load(first) {
    this.asked += 1;
    const mine = this.asked;
    try {
      const axes = await this.context.ask("matrix.axes", this.asking);
      if (mine !== this.asked) return;
      const { columns, rows } = axes.head;
      const other = !this.axes || this.axes.head.columns !== columns || this.axes.head.rows !== rows;
      this.axes = axes;
      this.squares = new Map();
      this.named = new Set();
      this.position = null;
      if (!columns || !rows) {
        fill(this.details, empty("This program has no steps.", "Another program may have: choose it above."));
      }
      this.columns.finest = Math.min(8, Math.max(1, columns));
      this.rows.finest = Math.min(8, Math.max(1, rows));
      if (other) {
        for (const [range, length, name] of [[this.columns, columns, "matrix.columns"], [this.rows, rows, "matrix.rows"]]) {
          range.bound(0, Math.max(1, length));
          const window = first && /^([\d.]+)-([\d.]+)$/.exec(this.context.state.get(name));
          if (window) range.set(Number(window[1]), Number(window[2]));
          else range.whole();
        }
      }
      this.note.textContent = `${count(rows)} tiles × ${count(columns)} steps, up to ${this.#words(axes.head.most)}`;
      this.chart.describe(`${METRICS.find(([m]) => m === this.asking.metric)[1]} of ${count(rows)} tiles in ${count(columns)} steps, at most ${this.#words(axes.head.most)}`);
      this.#tell();
      this.chart.redraw();
    } catch (error) {
      if (mine === this.asked) fill(this.details, failure(error));
    }
  }

  #words(value) {
    return this.asking.metric.endsWith("bytes") ? bytes(value, this.context.state.get("unit", "auto")) : `${short(value)} cycles`;
  }

  /** The tile at a place on the axis of rows, and the other way round. */
  #tileAt(row) {
    return tileAt(this.axes, row);
  }

  #rowOf(tile) {
    const { head, arrays } = this.axes;
    if (!head.sorted) return tile;
    if (!this.position) {
      this.position = new Map();
      arrays.tile.forEach((t, at) => this.position.set(t, at));
    }
    const size = 2 ** head.unit;
    const at = this.position.get(Math.floor(tile / size) * size);
    return at === undefined ? -1 : at * size + (tile % size);
  }

  #plot() {
    return { left: EDGE.left, top: EDGE.top, width: Math.max(1, this.chart.width - EDGE.left - EDGE.right), height: Math.max(1, this.chart.height - EDGE.top - EDGE.bottom) };
  }

  #inPlot(event, plot) {
    const [x, y] = this.chart.at(event);
    return [x - plot.left, y - plot.top];
  }

  /** The cell under an event: column and row. */
  #under(event) {
    if (!this.axes) return null;
    const plot = this.#plot();
    const [x, y] = this.#inPlot(event, plot);
    if (x < -EDGE.left || y < -EDGE.top || x >= plot.width || y >= plot.height) return null;
    const column = x < 0 ? -1 : Math.floor(this.columns.value(x, plot.width));
    const row = y < 0 ? -1 : Math.floor(this.rows.value(y, plot.height));
    return column < this.axes.head.columns && row < this.axes.head.rows ? { column, row } : null;
  }

  #steer() {
    const { canvas } = this.chart;
    let from = null;
    canvas.addEventListener("wheel", (event) => {
      const plot = this.#plot();
      const [x, y] = this.#inPlot(event, plot);
      const factor = Math.exp(Math.max(-200, Math.min(200, event.deltaY || event.deltaX)) * 0.002);
      // At the sides, or with shift or alt, one axis alone.
      if (x >= 0 && !event.altKey) this.columns.zoom(factor, this.columns.value(x, plot.width));
      if (y >= 0 && !event.shiftKey) this.rows.zoom(factor, this.rows.value(y, plot.height));
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      from = { x: event.clientX, y: event.clientY, columns: [this.columns.low, this.columns.high], rows: [this.rows.low, this.rows.high], moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) {
        this.#hover(event);
        return;
      }
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(dx) + Math.abs(dy) > 3) from.moved = true;
      if (!from.moved) return;
      const plot = this.#plot();
      for (const [range, [low, high], shift] of [[this.columns, from.columns, dx / plot.width], [this.rows, from.rows, dy / plot.height]]) range.set(low - shift * (high - low), high - shift * (high - low));
    });
    const end = (event) => {
      const was = from;
      from = null;
      if (!was || was.moved || event.type !== "pointerup") return;
      const at = this.#under(event);
      if (!at) return;
      const patch = {};
      if (at.row >= 0) patch.tiles = String(this.#tileAt(at.row));
      if (at.column >= 0) patch.step = this.axes.arrays.step[at.column];
      this.context.state.set(patch);
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("dblclick", () => this.whole());
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Arrows move the selection from cell to cell. */
  #key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!steps || !this.axes?.head.columns) return;
    const { head, arrays } = this.axes;
    const { column, row } = this.#chosen();
    const next = (at, by, most) => Math.min(Math.max((at < 0 ? -Math.min(by, 0) : at) + by, 0), most - 1);
    this.context.state.set({ tiles: String(this.#tileAt(next(row, steps[1], head.rows))), step: arrays.step[next(column, steps[0], head.columns)] });
    event.preventDefault();
    event.stopPropagation();
  }

  #chosen() {
    const { state } = this.context;
    const tile = ranges(state.get("tiles"))?.[0]?.[0];
    const column = this.axes ? this.axes.arrays.step.indexOf(state.number("step")) : -1;
    return { column, row: tile === undefined || !this.axes || tile >= this.axes.head.rows ? -1 : this.#rowOf(tile) };
  }

  #hover(event) {
    const at = this.#under(event);
    if (!at || (at.column < 0 && at.row < 0)) return hideTip();
    const { arrays } = this.axes;
    const lines = [];
    if (at.column >= 0) {
      const step = arrays.step[at.column];
      lines.push(this.#stepName(step) ?? `step ${count(step)}`);
    }
    if (at.row >= 0) lines.push(["tile", count(this.#tileAt(at.row))]);
    if (at.column >= 0 && at.row >= 0) {
      const found = this.#value(at.column, at.row);
      if (found) lines.push([found.joined > 1 ? "most in sight here" : METRICS.find(([m]) => m === this.asking.metric)[1], this.#words(found.value)]);
    } else if (at.row >= 0) lines.push([this.asking.metric === "memory_bytes" ? "at most" : "per run", this.#words(arrays.row_sums[at.row])]);
    else lines.push(["all tiles", this.#words(arrays.column_sums[at.column])]);
    return tip(event, lines.length && Array.isArray(lines[0]) ? [`${lines[0][0]} ${lines[0][1]}`, ...lines.slice(1)] : lines);
  }

  /** A step's name if it is here. Names come a page at a time; when one that is asked for is here, it is told. */
  #stepName(step) {
    const first = Math.floor(step / PAGE) * PAGE;
    const page = { of: "steps", first, count: PAGE, columns: "name" };
    const known = this.context.known("table", page);
    if (known) return known.head.text.name[step - first];
    if (this.context.source.isFrozen || this.named.has(first)) return null;
    // What could not be had once is not asked for again and again.
    this.named.add(first);
    const mine = this.asked;
    this.context.ask("table", page).then(() => {
      this.named.delete(first);
      if (mine === this.asked) this.#tell();
    }, () => {});
    return null;
  }

  #levels(plot) {
    const frozen = this.context.source.isFrozen;
    const { head } = this.axes;
    const top = (length) => Math.max(0, Math.ceil(Math.log2(Math.max(1, length))) - 8);
    let cl = levelFor(this.columns.span, plot.width * 1.2);
    let rl = levelFor(this.rows.span, plot.height * 1.2, head.sorted ? head.unit : 0);
    if (frozen) {
      rl = top(head.rows);
      cl = Math.max(top(head.columns) - 2, Math.min(cl, top(head.columns)), 0);
    }
    return [cl, rl];
  }

  /** A square, asked for if it is not here. */
  #square(cl, rl, c, r, ask = true) {
    const name = `${cl} ${rl} ${c} ${r}`;
    let square = this.squares.get(name);
    if (!square && ask) {
      square = { cl, rl, c, r, answer: null, picture: null };
      this.squares.set(name, square);
      const squares = this.squares;
      this.context.ask("matrix", { ...this.asking, cl, rl, c, r }).then((answer) => {
        square.answer = answer;
        if (squares === this.squares) this.chart.redraw();
      }, (error) => {
        square.failed = true;
        if (squares === this.squares) this.note.textContent = error.message;
      });
      if (this.squares.size > KEPT) this.squares.delete(this.squares.keys().next().value);
    }
    return square;
  }

  #value(column, row) {
    const [cl, rl] = this.#levels(this.#plot());
    const side = this.axes.head.side;
    const square = this.#square(cl, rl, Math.floor(column / (side * 2 ** cl)), Math.floor(row / (side * 2 ** rl)), false);
    if (!square?.answer) return null;
    const { values } = square.answer.arrays;
    const wide = values.shape[1];
    const [i, j] = [Math.floor(row / 2 ** rl) - square.r * side, Math.floor(column / 2 ** cl) - square.c * side];
    return { value: values[i * wide + j], joined: 2 ** (cl + rl) };
  }

  /** The picture of a square: a pixel for each group. */
  #painted(square) {
    if (square.picture || !square.answer) return square.picture;
    const { values } = square.answer.arrays;
    const [high, wide] = values.shape;
    if (!high || !wide) return null;
    const colours = theme();
    const heat = colours.heat.map((c) => c.match(/\d+/g).map(Number));
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [wide, high];
    const pen = picture.getContext("2d");
    const image = pen.createImageData(wide, high);
    const scale = this.context.state.get("matrix.scale", "log");
    const most = this.axes.head.most;
    for (let i = 0; i < values.length; i += 1) {
      if (!(values[i] > 0)) continue;
      const [r, g, b] = heat[Math.round(toned(values[i], most, scale) * 235) + 20];
      image.data.set([r, g, b, 255], 4 * i);
    }
    pen.putImageData(image, 0, 0);
    square.picture = picture;
    return picture;
  }

  #tell() {
    if (!this.axes?.head.columns) return;
    const { head, arrays } = this.axes;
    const { context } = this;
    const { state } = context;
    const { column, row } = this.#chosen();
    const metric = METRICS.find(([m]) => m === this.asking.metric)[1];
    const memory = this.asking.metric === "memory_bytes";
    const step = column >= 0 ? arrays.step[column] : -1;
    const named = (s) => this.#stepName(s) ?? `step ${count(s)}`;
    const busiest = greatest(arrays.column_sums, 14);
    fill(this.details,
      column >= 0 || row >= 0 ? part("Selected", facts([
        ["tile", row >= 0 ? count(this.#tileAt(row)) : ""],
        [memory ? "holds at most" : `${metric} per run`, row >= 0 ? this.#words(arrays.row_sums[row]) : ""],
        ["step", column >= 0 ? named(step) : ""],
        [memory ? "live over all tiles" : "all tiles, one execution", column >= 0 ? this.#words(arrays.column_sums[column]) : ""],
        ["cell", column >= 0 && row >= 0 && this.#value(column, row)?.joined === 1 ? this.#words(this.#value(column, row).value) : ""],
      ]), h("div.links", {}, row >= 0 ? link(context, "memory of the tile", "memory", {}) : null, row >= 0 ? link(context, "graph of the tile", "graph", { "graph.of": "tile" }) : null, column >= 0 ? link(context, "the step", "program", {}) : null, column >= 0 ? link(context, "its exchange", "exchange", {}) : null))
        : h("p.dim", {}, "Click a cell: its tile and step are selected everywhere. The wheel zooms both axes, at the sides one of them; drag moves."),
      part(memory ? "Fullest tiles" : "Busiest tiles", listing("Tiles with the greatest sums", [["tile", (r) => h("button.link", { onclick: () => state.set({ tiles: String(this.#tileAt(r)) }) }, count(this.#tileAt(r)))], [memory ? "most bytes" : "per run", (r) => this.#words(arrays.row_sums[r]), true]], greatest(arrays.row_sums, 10))),
      part("Steps with most", listing("Steps with the greatest sums", [["step", (c) => h("button.link", { onclick: () => state.set({ step: arrays.step[c] }), title: named(arrays.step[c]) }, lastScopes(named(arrays.step[c]), 2))], ["all tiles", (c) => this.#words(arrays.column_sums[c]), true]], busiest)));
  }

  #draw(context, { width, height, theme: colours }) {
    if (!this.axes?.head.columns || !this.axes.head.rows) return;
    const { head, arrays } = this.axes;
    const plot = this.#plot();
    context.fillStyle = colours.back;
    context.fillRect(plot.left, plot.top, plot.width, plot.height);
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    const [cl, rl] = this.#levels(plot);
    const [cs, rs] = [head.side * 2 ** cl, head.side * 2 ** rl];
    const x = (c) => plot.left + this.columns.pixel(c, plot.width);
    const y = (r) => plot.top + this.rows.pixel(r, plot.height);
    const put = (square) => {
      const picture = this.#painted(square);
      if (!picture) return false;
      const [c0, r0] = [square.c * head.side * 2 ** square.cl, square.r * head.side * 2 ** square.rl];
      const [c1, r1] = [Math.min(c0 + picture.width * 2 ** square.cl, head.columns), Math.min(r0 + picture.height * 2 ** square.rl, head.rows)];
      // The last group of an axis may be smaller: its pixel is, too.
      const [dx, dy] = [x(c0), y(r0)];
      context.drawImage(picture, 0, 0, (c1 - c0) / 2 ** square.cl, (r1 - r0) / 2 ** square.rl, dx, dy, x(c1) - dx, y(r1) - dy);
      return true;
    };
    for (let r = Math.floor(this.rows.low / rs); r * rs < Math.min(this.rows.high, head.rows); r += 1) {
      for (let c = Math.floor(this.columns.low / cs); c * cs < Math.min(this.columns.high, head.columns); c += 1) {
        const known = this.#square(cl, rl, c, r, false);
        if (known?.answer) {
          put(known);
          continue;
        }
        // Meanwhile the finest coarser one that is here.
        const coarser = [...this.squares.values()].filter((s) => s.answer && s.cl >= cl && s.rl >= rl && Math.floor(c / 2 ** (s.cl - cl)) === s.c && Math.floor(r / 2 ** (s.rl - rl)) === s.r).sort((a, b) => a.cl + a.rl - b.cl - b.rl)[0];
        if (!coarser || performance.now() - (this.moved ?? 0) >= REST - 4) this.#square(cl, rl, c, r);
        if (coarser) {
          context.save();
          context.beginPath();
          context.rect(x(c * cs), y(r * rs), x((c + 1) * cs) - x(c * cs), y((r + 1) * rs) - y(r * rs));
          context.clip();
          put(coarser);
          context.restore();
        }
      }
    }
    const chosen = this.#chosen();
    context.fillStyle = colours.bad;
    if (chosen.column >= 0) context.fillRect(x(chosen.column + 0.5) - 0.75, plot.top, 1.5, plot.height);
    if (chosen.row >= 0) context.fillRect(plot.left, y(chosen.row + 0.5) - 0.75, plot.width, 1.5);
    context.restore();
    this.#sides(context, colours, plot, arrays, head);
    context.fillStyle = colours.dim;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "start";
    context.fillText(fitted(context, `steps ${count(Math.floor(this.columns.low))} to ${count(Math.ceil(this.columns.high) - 1)}, in order`, plot.width), plot.left, height - 6);
    this.#legend(context, colours, width, height, head);
  }

  /** Sums of columns above, of rows at the left: of several places in a pixel the greatest. */
  #sides(context, colours, plot, arrays, head) {
    context.save();
    context.beginPath();
    context.rect(plot.left, 0, plot.width, plot.top);
    context.clip();
    for (const { from, to, share, at } of bars(arrays.column_sums, this.columns, plot.width)) {
      context.fillStyle = colours.parts[PARTS[arrays.part[at]]];
      context.fillRect(plot.left + from, plot.top - 4 - SUMS * share, to - from, SUMS * share);
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(0, plot.top, plot.left, plot.height);
    context.clip();
    context.fillStyle = colours.series[6];
    for (const { from, to, share } of bars(arrays.row_sums, this.rows, Math.floor(plot.height))) context.fillRect(plot.left - 4 - SUMS * share, plot.top + from, SUMS * share, to - from);
    context.fillStyle = colours.dim;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    const { marks: places } = marks(this.rows.low, this.rows.high, Math.max(2, plot.height / 36));
    for (const row of places) {
      if (row !== Math.floor(row) || row < 0 || row >= head.rows) continue;
      context.fillText(count(this.#tileAt(Math.abs(row))), plot.left - SUMS - 12, plot.top + this.rows.pixel(row + 0.5, plot.height) + 4);
    }
    context.restore();
    context.textAlign = "right";
    context.fillStyle = colours.dim;
    context.font = "11px system-ui, sans-serif";
    context.fillText("tile", plot.left - SUMS - 12, plot.top - 4);
    context.fillText("sums", plot.left - 6, plot.top - 4);
  }

  #legend(context, colours, width, height, head) {
    const wide = 120;
    const left = width - EDGE.right - wide;
    for (let i = 0; i < wide; i += 2) {
      context.fillStyle = colours.heat[Math.round((i / wide) * 235) + 20];
      context.fillRect(left + i, height - 13, 2, 8);
    }
    context.fillStyle = colours.dim;
    context.textAlign = "right";
    context.fillText(`little to ${this.#words(head.most)}`, left - 6, height - 6);
    context.textAlign = "start";
  }
}
