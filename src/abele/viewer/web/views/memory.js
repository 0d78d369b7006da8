// What each tile holds: stacked by tile, on the floor plan, and what selected tiles hold and do.

import { fill, h, settled } from "abele/core/dom.js";
import { bytes, count, percent } from "abele/core/format.js";
import { FloorPlan } from "abele/core/floorplan.js";
import { choice, dropdown, empty, failure, legend, split, tabs, toggle } from "abele/core/parts.js";
import { Range } from "abele/core/range.js";
import { NOTHING, renewed } from "abele/core/renewed.js";
import { Stacked } from "abele/core/stacked.js";
import { theme } from "abele/core/theme.js";
import { LONGEST, rangesText } from "abele/core/tileset.js";
import { categoriesTab } from "abele/views/memory/categories.js";
import { Chosen, tilesInput } from "abele/views/memory/chosen.js";
import { partColour, titleOf } from "abele/views/memory/colours.js";
import { overflowTab } from "abele/views/memory/overflow.js";
import { keptTab } from "abele/views/memory/kept.js";
import { codeTab, gapsTab, stepsTab, variablesTab } from "abele/views/memory/tables.js";
import { verticesTab } from "abele/views/memory/vertices.js";

const BY = [["category", "category"], ["live", "always live or not"], ["type", "data type"], ["region", "region"], ["none", "nothing"]];
const ORDERS = [["number", "number"], ["size", "size"], ["physical", "place on the chip"]];
const KINDS = [["total", "total"], ["variables", "variables"], ["floor", "floor plan"]];
const LINE_FROM = 0.4;
const REST = 150;

export const mount = (context, place) => renewed(context, place, ofReport);

async function ofReport(context, place) {
  const { facts, state } = context;
  if (!facts.num_tiles) {
    fill(place, empty("This report says nothing about tiles.", "Reports of compiled programs do; abele compile makes one."));
    return NOTHING;
  }
  const view = new MemoryView(context, place);
  await view.start();
  return view;
}

class MemoryView {
  constructor(context, place) {
    this.context = context;
    this.place = place;
    this.chosen = new Chosen(context);
    this.anchor = null;
    this.positions = null;
    this.order = null;
    const { num_tiles: tiles } = context.facts;
    this.range = new Range(0, tiles, Math.min(4, tiles));
    this.charts = [];
    this.commands = [
      { title: "Select tiles that are too full", run: () => this.#select("over") },
      { title: "Select the fullest tile", run: () => this.#select(String(context.facts.fullest_tile)) },
      { title: "Select the ten fullest tiles", run: () => this.#select("top 10") },
      { title: "Next tile", key: ".", run: () => this.#step(1) },
      { title: "Tile before", key: ",", run: () => this.#step(-1) },
    ];
  }

  get #kind() {
    const kind = this.context.state.get("memory.kind", "total");
    return kind === "variables" && !this.context.state.get("memory.variables") ? "total" : kind;
  }

  /** Parameters of the curve: what a question and a static page are asked with. */
  #params() {
    const { state } = this.context;
    const rows = this.#kind === "variables" ? `variables:${state.get("memory.variables")}` : state.get("memory.by", "category");
    return { by: rows, gaps: state.get("memory.gaps", "1"), order: state.get("memory.order", "number"), ipu: state.number("memory.ipu", -1) };
  }

  async start() {
    const { context } = this;
    const { state } = context;
    this.floor = await context.ask("floor");
    this.stacked = new Stacked({
      label: "Memory by tile", name: "memory", range: this.range, length: () => this.#length(),
      ask: (at) => context.ask("memory.tiles", { ...this.#params(), ...at }),
      known: (at) => context.known("memory.tiles", { ...this.#params(), ...at }),
      has: (at) => context.source.has(context.report, "memory.tiles", { ...this.#params(), ...at }),
      colour: partColour,
      unit: () => state.get("unit", "auto"),
      axis: (at) => count(this.order ? this.order[at] : this.#first() + at),
      lines: () => this.#lines(),
      bands: () => this.#bands(),
      pick: (bucket, event) => this.#picked(bucket.place, event),
      select: (low, high, done) => this.#dragged(low, high, done),
      tell: (bucket) => this.#tell(bucket),
      loaded: (head) => this.#loaded(head),
    });
    this.plan = new FloorPlan({
      label: "Floor plan", name: "floor-plan", floor: this.floor,
      select: (tiles) => this.#select(tiles),
      tell: (tile) => this.#tellTile(tile),
      words: (value) => (this.metricUnit === "cycles" ? count(Math.round(value)) : bytes(value, state.get("unit", "auto"))),
      scaled: ({ low, high }) => state.set({ "memory.low": low === null ? null : Math.round(low), "memory.high": high === null ? null : Math.round(high) }),
    });
    this.charts = [this.stacked.chart, this.plan.chart];
    this.#build();
    this.context.keys.steer(this.range);
    const from = state.number("memory.from");
    const to = state.number("memory.to");
    // Ends of the axis are known with the first answer; the window of a link is set then.
    this.window = Number.isFinite(from) && Number.isFinite(to) ? [from, to] : null;
    this.range.addEventListener("change", settled(() => this.#remember(), REST));
    await this.stacked.ready;
    await Promise.all([this.#order(), this.#selected(), this.#metric()]);
    this.#arrange();
  }

  #build() {
    const { context, stacked } = this;
    const { state, facts } = context;
    this.input = tilesInput(context, this.chosen);
    const set = (name, otherwise) => (value) => state.set({ [name]: value === otherwise ? null : value });
    this.kinds = choice("Chart", KINDS, this.#kind, (kind) => state.set({ "memory.kind": kind === "total" ? null : kind }));
    const several = this.floor.head.num_ipus > 1;
    const ipus = [["-1", "all IPUs"], ...Array.from({ length: this.floor.head.num_ipus }, (_, i) => [String(i), `IPU ${i}`])];
    const list = (label, options, name, otherwise) => [dropdown(label, options, state.get(name, otherwise), set(name, otherwise)), name, otherwise];
    this.lists = [list("Divide by", BY, "memory.by", "category"), list("Order of tiles", ORDERS, "memory.order", "number"), list("IPU", ipus, "memory.ipu", "-1")];
    this.by = h("label.toggle", {}, "by ", this.lists[0][0]);
    this.options = h("span.bar", {},
      this.by, h("label.toggle", {}, "order ", this.lists[1][0]), several ? this.lists[2][0] : null,
      toggle("gaps", state.get("memory.gaps", "1") === "1", (on) => state.set({ "memory.gaps": on ? null : "0" })),
      toggle("limit", this.#limit(), (on) => state.set({ "memory.limit": on ? "1" : "0" })));
    const metrics = [["total", "total"], ["free", "free"], ...this.#categories().map((name) => [name, titleOf(name)]),
      ["compute_cycles", "cycles computing"], ["sent_bytes", "bytes sent"], ["received_bytes", "bytes received"], ["variable", "selected variable"], ["operation", "code of selected operation"]];
    this.lists.push(list("Colours of the floor plan", metrics, "memory.metric", "total"));
    this.metrics = this.lists[3][0];
    this.boxes = this.options.querySelectorAll("input");
    this.legend = h("div.legend-row");
    this.lost = h("div");
    stacked.failed = (error) => fill(this.lost, failure(error));
    this.curve = h("div.curve", {}, stacked.brush.element, stacked.chart.element, this.legend);
    this.side = h("aside.side", { "aria-label": "Floor plan" }, h("div.bar", {}, h("span.dim", {}, "floor plan: "), this.metrics, h("button.small", { title: "Show all of the floor plan", onclick: () => this.plan.whole() }, "all")), this.plan.element);
    this.upper = h("div.memory-upper", {}, this.curve, this.side);
    const fits = facts.fits;
    const entries = [
      ...(fits ? [] : [["overflow", "too full", () => this.#tab(overflowTab(context))]]),
      ["categories", "tiles", () => this.#tab(categoriesTab(context, this.chosen))],
      ["variables", "variables", () => this.#tab(variablesTab(context, this.chosen))],
      ["kept", "temporaries", () => this.#tab(keptTab(context, this.chosen))],
      ["code", "state and code", () => this.#tab(codeTab(context, this.chosen))],
      ["vertices", "vertices", () => this.#tab(verticesTab(context, () => ({ tiles: this.chosen.text }), "Codelets of vertices in compute sets in which the selected tiles compute; numbers of vertices are of all tiles."))],
      ["compute", "compute sets", () => this.#tab(stepsTab(context, this.chosen, "compute"))],
      ["exchange", "exchanges", () => this.#tab(stepsTab(context, this.chosen, "exchange"))],
      ["gaps", "gaps", () => this.#tab(gapsTab(context, this.chosen))],
    ];
    this.parts = [];
    this.lower = tabs("Of the selected tiles", entries, state.get("memory.tab", entries[0][0]), (name) => state.set({ "memory.tab": name }));
    const box = split(h("section.panel.fill", { "aria-label": "Memory by tile" }, h("div.bar", {}, this.kinds, this.options, h("span.grow"), this.input.element), this.lost, this.upper),
      h("section.panel.fill", { "aria-label": "Of the selected tiles" }, this.lower), state.number("memory.split", 0.55), (part) => state.set({ "memory.split": part.toFixed(3) }));
    fill(this.place, box);
  }

  #tab(part) {
    this.parts.push(part);
    if (this.begun) part.update();
    return part.element;
  }

  #categories() {
    return ["variables", "temporaries", "vertex_state", "vertex_code", "control_code", "exchange_code", "stacks", "stream_buffers", "gaps"];
  }

  #limit() {
    const said = this.context.state.get("memory.limit");
    if (said) return said === "1";
    return (this.stacked?.head?.greatest ?? 0) > LINE_FROM * this.context.facts.available_bytes;
  }

  #lines() {
    if (this.#kind === "variables" || !this.#limit()) return [];
    return [{ value: this.context.facts.available_bytes, title: `what a tile has: ${bytes(this.context.facts.available_bytes, this.context.state.get("unit", "auto"))}` }];
  }

  #length() {
    const { num_tiles: tiles, tiles_per_ipu: per } = this.floor.head;
    const ipu = this.context.state.number("memory.ipu", -1);
    return ipu < 0 ? tiles : Math.max(0, Math.min(per, tiles - ipu * per));
  }

  #first() {
    const ipu = this.context.state.number("memory.ipu", -1);
    return ipu < 0 ? 0 : ipu * this.floor.head.tiles_per_ipu;
  }

  #loaded(head) {
    if (this.window) {
      this.range.set(...this.window);
      this.window = null;
    }
    fill(this.lost);
    const colours = theme();
    const named = head.parts.map((name, i) => [partColour(name, i, colours), titleOf(name)]);
    fill(this.legend, legend(named), head.top > 0 ? h("span.dim", { title: "A column of pixels holds several tiles: the fullest of them is drawn as it is divided, the emptiest is the line." }, "line: the emptiest") : null);
    const unit = this.context.state.get("unit", "auto");
    this.stacked.chart.describe(`Memory by tile, ${count(head.length)} tiles, stacked: ${head.parts.map(titleOf).join(", ")}. The fullest has ${bytes(head.greatest, unit)} of ${bytes(this.context.facts.available_bytes, unit)}.`);
    if (this.boxes) this.boxes[1].checked = this.#limit();
  }

  #remember() {
    if (!this.place.isConnected) return;
    const whole = this.range.low === this.range.least && this.range.high === this.range.most;
    this.context.state.set({ "memory.from": whole ? null : this.range.low.toFixed(2), "memory.to": whole ? null : this.range.high.toFixed(2) });
  }

  /** Which tile lies at which place of the axis, where that is not its number. */
  async #order() {
    const params = this.#params();
    if (params.order === "number") {
      [this.order, this.positions] = [null, null];
      return;
    }
    const { arrays } = await this.context.ask("memory.order", params);
    this.order = arrays.tile;
    this.positions = new Int32Array(this.context.facts.num_tiles).fill(-1);
    this.order.forEach((tile, at) => { this.positions[tile] = at; });
    this.bandsOf = null;
    this.stacked.redraw();
  }

  /** Places of the axis that are selected, as ranges. */
  #bands() {
    const { marks } = this.chosen;
    if (!marks || this.chosen.number === marks.length) return [];
    const key = `${this.chosen.text} ${JSON.stringify(this.#params())} ${this.positions !== null}`;
    if (this.bandsOf === key) return this.bandsKept;
    const length = this.stacked.head?.length ?? marks.length;
    const first = this.#first();
    const on = new Uint8Array(length);
    for (let tile = 0; tile < marks.length; tile += 1) {
      if (!marks[tile]) continue;
      const at = this.positions ? this.positions[tile] : tile - first;
      if (at >= 0 && at < length) on[at] = 1;
    }
    const found = [];
    for (let i = 0; i < length; i += 1) {
      if (!on[i]) continue;
      let j = i;
      while (j + 1 < length && on[j + 1]) j += 1;
      found.push([i, j]);
      i = j;
    }
    [this.bandsOf, this.bandsKept] = [key, found];
    return found;
  }

  #tileAt(place) {
    return this.order ? this.order[place] : this.#first() + place;
  }

  #select(tiles) {
    if (tiles && !/^[\d,\s-]*$/.test(tiles)) {
      this.context.ask("tiles", { text: tiles }).then(({ head }) => this.context.state.set({ tiles: head.text || null }), (error) => fill(this.lost, failure(error)));
      return;
    }
    this.context.state.set({ tiles: tiles || null });
  }

  #picked(place, event) {
    const tile = this.#tileAt(place);
    if (event.shiftKey && this.anchor !== null) {
      this.#places(Math.min(place, this.anchor), Math.max(place, this.anchor));
      return;
    }
    this.anchor = place;
    if (event.ctrlKey || event.metaKey) {
      const marks = this.chosen.marks ? this.chosen.marks.slice() : new Uint8Array(this.context.facts.num_tiles);
      marks[tile] = marks[tile] ? 0 : 1;
      const numbers = [];
      marks.forEach((on, i) => on && numbers.push(i));
      this.#numbers(numbers);
    } else {
      this.context.state.set({ tiles: tile });
    }
  }

  /** Select the tiles at these places of the axis, ends included. */
  #places(low, high) {
    const numbers = [];
    for (let place = low; place <= high; place += 1) numbers.push(this.#tileAt(place));
    this.#numbers(numbers.sort((a, b) => a - b));
  }

  #numbers(numbers) {
    const text = rangesText(numbers);
    if (text.length <= LONGEST) this.context.state.set({ tiles: text || null });
    else fill(this.lost, failure({ message: "That many scattered tiles do not go into a link.", remedy: "select them by words: top 100, total>600kB" }));
  }

  #dragged(low, high, done) {
    if (!done) return;
    const length = this.stacked.head?.length ?? 0;
    this.#places(Math.max(0, Math.floor(low)), Math.min(length - 1, Math.floor(high)));
  }

  #step(by) {
    const now = this.chosen.marks?.indexOf(1) ?? -1;
    const at = now < 0 ? (by > 0 ? -1 : 0) : this.positions ? this.positions[now] : now - this.#first();
    const length = this.stacked.head?.length ?? 0;
    const next = Math.min(Math.max(at + by, 0), length - 1);
    this.anchor = next;
    this.context.state.set({ tiles: this.#tileAt(next) });
    if (next < this.range.low || next >= this.range.high) this.range.set(next - this.range.span / 2, next + this.range.span / 2);
  }

  #tell(bucket) {
    const unit = this.context.state.get("unit", "auto");
    const tile = bucket.arrays.tile[bucket.at];
    const lines = [bucket.size > 1 ? `tile ${count(tile)}: the fullest of ${count(bucket.size)}` : `tile ${count(tile)}`];
    if (this.floor.head.num_ipus > 1) lines[0] += ` · IPU ${Math.floor(tile / this.floor.head.tiles_per_ipu)}`;
    bucket.names.forEach((name, i) => bucket.values[i] > 0 && lines.push([titleOf(name), bytes(bucket.values[i], unit)]));
    lines.push(["together", bytes(bucket.total, unit)]);
    if (this.#kind !== "variables") {
      const room = this.context.facts.available_bytes;
      lines.push(bucket.total > room ? ["too much", bytes(bucket.total - room, unit)] : ["of what it has", percent(bucket.total / room)]);
    }
    if (bucket.size > 1) lines.push(["the emptiest", bytes(bucket.least, unit)]);
    return lines;
  }

  #tellTile(tile) {
    const ipu = Math.floor(tile / this.floor.head.tiles_per_ipu);
    const at = tile - ipu * this.floor.head.tiles_per_ipu;
    return [`tile ${count(tile)}`, ...(this.floor.head.num_ipus > 1 ? [["IPU", String(ipu)]] : []),
      ["column, row", `${this.floor.arrays.column[at]}, ${this.floor.arrays.row[at]}`],
      [this.metricTitle ?? "", this.plan.words(this.plan.values[tile])]];
  }

  async #metric() {
    const { state } = this.context;
    let metric = state.get("memory.metric", "total");
    if (metric === "variable") metric = Number.isFinite(state.number("variable")) ? `variable:${state.number("variable")}` : "total";
    if (metric === "operation") metric = Number.isFinite(state.number("op")) ? `operation:${state.number("op")}` : "total";
    const params = { metric };
    if (metric.endsWith("_cycles") || metric.endsWith("t_bytes") || metric.endsWith("d_bytes")) params.program = this.context.program || undefined;
    const { head, arrays } = await this.context.ask("floor.metric", params);
    this.metricUnit = head.unit;
    this.metricTitle = head.title;
    this.plan.scale.span(state.number("memory.low"), state.number("memory.high"));
    this.plan.show(arrays.values, { least: 0 });
    this.plan.chart.describe(`Floor plan: ${head.title} of ${count(arrays.values.length)} tiles, from ${this.plan.words(arrays.values.reduce((a, b) => Math.min(a, b), Infinity))} to ${this.plan.words(arrays.values.reduce((a, b) => Math.max(a, b), 0))}`);
  }

  async #selected() {
    try {
      await this.chosen.read();
    } catch (error) {
      fill(this.lost, failure(error));
      return;
    }
    this.begun = true;
    this.input.show();
    this.plan.mark(this.chosen.marks);
    this.stacked.redraw();
    for (const part of this.parts) part.update();
  }

  #arrange() {
    const kind = this.#kind;
    this.kinds.show(kind);
    const { state } = this.context;
    for (const [list, name, otherwise] of this.lists) list.value = state.get(name, otherwise);
    this.options.hidden = kind === "floor";
    this.by.hidden = kind === "variables";
    for (const box of this.boxes) box.parentElement.hidden = kind === "variables";
    this.boxes[0].checked = state.get("memory.gaps", "1") === "1";
    this.boxes[1].checked = this.#limit();
    this.upper.classList.toggle("floor-only", kind === "floor");
  }

  update(changed) {
    const names = [...changed];
    const touches = (...wanted) => wanted.some((name) => changed.has(name));
    if (names.some((name) => name.startsWith("memory."))) this.#arrange();
    if (touches("memory.kind", "memory.by", "memory.gaps", "memory.order", "memory.ipu") || (this.#kind === "variables" && touches("memory.variables"))) {
      this.bandsOf = null;
      this.stacked.reset();
      this.#order().catch((error) => fill(this.lost, failure(error)));
    }
    if (touches("memory.metric", "memory.low", "memory.high", "program") || ["variable", "op"].some((name) => touches(name) && this.context.state.get("memory.metric") === (name === "op" ? "operation" : name))) {
      this.#metric().catch((error) => fill(this.lost, failure(error)));
    }
    if (touches("memory.from", "memory.to")) {
      const [from, to] = [this.context.state.number("memory.from", this.range.least), this.context.state.number("memory.to", this.range.most)];
      if (Math.abs(from - this.range.low) > 0.01 || Math.abs(to - this.range.high) > 0.01) this.range.set(from, to);
    }
    if (touches("tiles")) this.#selected();
    else if (names.some((name) => ["unit", "variable", "op", "step", "memory.variables"].includes(name))) for (const part of this.parts) part.update();
    if (touches("unit", "theme", "memory.limit")) {
      if (this.stacked.head) this.#loaded(this.stacked.head);
      this.stacked.redraw();
      this.plan.redraw();
    }
  }

  destroy() {
    this.stacked.destroy();
    this.plan.destroy();
    for (const part of this.parts) part.destroy();
  }
}
