// Operations in their modules and what flows between them; and what one tile holds and does.

import { Chart } from "abele/core/chart.js";
import { facts, link, listing, part } from "abele/core/detail.js";
import { fill, h, settled } from "abele/core/dom.js";
import { bytes, count, percent, short } from "abele/core/format.js";
import { choice, dropdown, empty, failure, panel, toggle } from "abele/core/parts.js";
import { Plane, grab } from "abele/core/plane.js";
import { hideTip, tip } from "abele/core/tip.js";
import { MODULE, OP, OPENED, REST, drawGraph } from "abele/views/graph/draw.js";
import { TileGraph } from "abele/views/graph_tile.js";

const METRICS = { cycles: "cycles", flops: "FLOP", moved_bytes: "moved bytes", read_bytes: "read bytes", written_bytes: "written bytes", code_bytes: "code", balance: "tile balance" };

/** Numbers of open modules as the question takes them. */
export function openText(numbers) {
  return numbers.length ? [...numbers].sort((a, b) => a - b).join(".") : "none";
}

export function mount(context, place) {
  const view = new GraphView(context);
  fill(place, view.element);
  view.start();
  return {
    update: (changed) => view.update(changed),
    destroy: () => view.destroy(),
    get charts() { return [view.ofTile ? view.ofTile.chart : view.chart]; },
    commands: [
      { title: "Open all modules that fit", run: () => view.openMore() },
      { title: "Close all modules", run: () => view.open([]) },
      { title: "Show all of the graph", run: () => view.plane.whole() },
      { title: "Labels of edges", run: () => context.state.set({ "graph.labels": context.state.get("graph.labels") ? null : "1" }) },
    ],
  };
}

class GraphView {
  constructor(context) {
    this.context = context;
    this.data = null;
    this.asked = 0;
    const { state } = context;
    this.chart = new Chart({ label: "Operations and what flows between them", name: "graph", draw: (c, p) => this.#draw(c, p) });
    this.chart.element.classList.add("fill");
    this.plane = new Plane(() => ({ width: this.data?.head.width ?? 1, height: this.data?.head.height ?? 1, boxWidth: this.chart.width, boxHeight: this.chart.height }));
    const remember = settled(() => state.set({ "graph.place": this.plane.text() }), 200);
    this.plane.addEventListener("change", () => {
      this.chart.redraw();
      remember();
    });
    grab(this.chart.canvas, this.plane, { click: (event) => this.#click(event) });
    this.chart.canvas.addEventListener("pointermove", (event) => this.#hover(event));
    this.chart.canvas.addEventListener("pointerleave", hideTip);
    this.chart.canvas.addEventListener("dblclick", (event) => {
      const i = this.#under(event);
      if (i >= 0) this.#turn(i);
    });
    this.chart.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.find = h("input.filter", { type: "search", placeholder: "find operations", "aria-label": "Find in the graph", value: state.get("graph.find"), spellcheck: "false" });
    this.find.addEventListener("input", settled(() => state.set({ "graph.find": this.find.value || null }), 100));
    this.find.addEventListener("keydown", (event) => event.key === "Enter" && this.#next());
    this.note = h("span.dim", { role: "status" });
    this.metric = dropdown("Colour", Object.entries(METRICS), state.get("graph.metric", "cycles"), (m) => state.set({ "graph.metric": m === "cycles" ? null : m }));
    this.labels = toggle("tensors", state.get("graph.labels") === "1", (on) => state.set({ "graph.labels": on ? "1" : null }));
    this.round = toggle("loops", state.get("graph.round", "1") === "1", (on) => state.set({ "graph.round": on ? null : "0" }));
    this.details = h("div.told", { "aria-live": "polite" });
    this.of = choice("Graph of", [["ops", "operations"], ["tile", "one tile"]], state.get("graph.of", "ops"), (of) => state.set({ "graph.of": of === "ops" ? null : of }));
    this.bar = h("div.bar", {}, this.find, this.note, h("span.grow"), h("label.dim", {}, "colour ", this.metric), this.labels, this.round,
      h("button.small", { onclick: () => this.plane.whole(), title: "Show all (0)" }, "fit"),
      h("button.small", { onclick: () => this.openMore(), title: "Open one level more" }, "+"),
      h("button.small", { onclick: () => this.open([]), title: "Close all modules" }, "−"));
    this.box = h("div.fill.lists", {}, this.bar, this.chart.element);
    this.left = h("div.fill.lists");
    this.element = h("div.beside.wide", {}, panel("Graph", this.left, this.of), panel("Details", this.details));
  }

  destroy() {
    this.isGone = true;
    this.asked += 1;
    this.chart.destroy();
    this.ofTile?.destroy();
  }

  start() {
    this.#which();
  }

  update(changed) {
    const { state } = this.context;
    if (changed.has("graph.of")) {
      this.of.show(state.get("graph.of", "ops"));
      this.#which();
      return;
    }
    if (this.ofTile) {
      this.ofTile.update(changed);
      return;
    }
    if (changed.has("graph.open") || changed.has("reports")) this.#load(false);
    else if (changed.has("op") || changed.has("step")) this.#selected(changed.has("op"));
    if (changed.has("graph.find")) this.#found();
    if (["graph.metric", "graph.labels", "graph.round", "graph.find", "theme"].some((n) => changed.has(n))) this.chart.redraw();
    if (changed.has("unit")) this.#tell();
  }

  #which() {
    const tile = this.context.state.get("graph.of") === "tile";
    this.ofTile?.destroy();
    this.ofTile = null;
    if (tile) {
      this.ofTile = new TileGraph(this.context, this.details);
      fill(this.left, this.ofTile.element);
      return;
    }
    fill(this.left, this.box);
    this.context.keys.steer(this.plane);
    if (!this.data) this.#load(true);
    else this.#tell();
  }

  open(numbers) {
    this.context.state.set({ "graph.open": openText(numbers) });
  }

  openMore() {
    if (!this.data) return;
    const { head, arrays } = this.data;
    const more = [...arrays.node].filter((_, i) => arrays.kind[i] === MODULE);
    this.open([...head.open, ...more]);
  }

  async #load(first) {
    const { state } = this.context;
    this.asked += 1;
    const mine = this.asked;
    const op = state.number("op");
    const open = state.get("graph.open");
    try {
      // A drawing that opens by itself for an operation is asked for once; others are as the state says.
      let data = await this.context.ask("graph", { open });
      if (op >= 0 && !this.context.source.isFrozen && !data.arrays.op.includes(op) && first) data = await this.context.ask("graph", { open, op });
      if (mine !== this.asked) return;
      const held = this.data && this.#hold();
      this.data = data;
      this.#index();
      if (first && !this.plane.read(state.get("graph.place"))) this.#atFirst();
      else if (held) this.#keep(held);
      this.#found();
      this.#selected(first && op >= 0 && !state.get("graph.place"));
    } catch (error) {
      if (mine === this.asked) fill(this.details, failure(error));
    }
  }

  /** Show the whole where that can be read, else its beginning. */
  #atFirst() {
    if (!this.chart.width) {
      if (!this.isGone) requestAnimationFrame(() => this.#atFirst());
      return;
    }
    this.plane.whole();
    if (this.plane.scale >= 0.5) return;
    const scale = Math.max(0.6, Math.min(1, (this.chart.width - 24) / Math.max(1, this.data.head.width)));
    const { arrays } = this.data;
    const first = [...arrays.node.keys()].filter((i) => arrays.kind[i] !== OPENED && arrays.y[i] < this.chart.height / scale);
    const middle = first.reduce((sum, i) => sum + arrays.x[i] + arrays.w[i] / 2, 0) / Math.max(1, first.length);
    const x = this.chart.width / 2 - middle * scale;
    const room = this.chart.width - this.data.head.width * scale;
    this.plane.set(room > 0 ? room / 2 : Math.min(12, Math.max(room - 12, x)), 12, scale);
  }

  /** The node that stays where it is when modules open or close. */
  #hold() {
    const { arrays } = this.data;
    const i = this.turned ?? this.chosen;
    if (!(i >= 0)) return null;
    return { node: arrays.node[i], rest: arrays.kind[i] === REST, x: arrays.x[i] * this.plane.scale + this.plane.x, y: arrays.y[i] * this.plane.scale + this.plane.y };
  }

  #keep(held) {
    const { arrays } = this.data;
    const i = arrays.node.findIndex((n, k) => n === held.node && (arrays.kind[k] === REST) === held.rest);
    this.turned = undefined;
    if (i >= 0) this.plane.set(held.x - arrays.x[i] * this.plane.scale, held.y - arrays.y[i] * this.plane.scale);
    else this.chart.redraw();
  }

  /** What is looked up while drawing: edges of nodes, greatest values. */
  #index() {
    const { head, arrays } = this.data;
    const n = arrays.node.length;
    const k = head.metrics.length;
    this.most = head.metrics.map((_, m) => {
      let most = 0;
      for (let i = 0; i < n; i += 1) if (arrays.kind[i] !== OPENED) most = Math.max(most, arrays.metric[i * k + m]);
      return most;
    });
    this.edges = Array.from({ length: n }, () => []);
    for (let e = 0; e < arrays.from.length; e += 1) {
      this.edges[arrays.from[e]].push(e);
      this.edges[arrays.to[e]].push(e);
    }
    const labels = Array.from(head.labels, (label, i) => `${label}${arrays.kind[i] === OP ? "" : ` (${arrays.count[i]} operations)`}`);
    this.chart.describe(`Graph of ${n} nodes and ${arrays.from.length} edges: ${labels.slice(0, 40).join(", ")}${n > 40 ? " and more" : ""}. Arrow keys go from node to node.`);
    this.note.textContent = `${count(n)} nodes, ${count(arrays.from.length)} edges${head.left_out ? ` (${count(head.left_out)} thinner ones left out)` : ""}${head.told ? "" : ": from lifetimes and order"}`;
    this.note.title = head.told ? "" : "This report does not tell which steps read and write which variables. Edges lead from the operation that brings a variable to life to the last that needs it; dotted ones are mere order.";
  }

  #under(event) {
    if (!this.data) return -1;
    const [x, y] = this.plane.at(this.chart.canvas, event);
    const { arrays } = this.data;
    for (let i = arrays.node.length - 1; i >= 0; i -= 1) {
      if (x < arrays.x[i] || x > arrays.x[i] + arrays.w[i] || y < arrays.y[i] || y > arrays.y[i] + arrays.h[i]) continue;
      if (arrays.kind[i] !== OPENED || y < arrays.y[i] + 22) return i;
    }
    return -1;
  }

  #click(event) {
    const i = this.#under(event);
    this.chart.canvas.focus({ preventScroll: true });
    this.#choose(i);
    if (i >= 0) {
      const { arrays } = this.data;
      const [x] = this.plane.at(this.chart.canvas, event);
      // The mark at the left end opens and closes.
      if (arrays.kind[i] !== OP && x < arrays.x[i] + 18) this.#turn(i);
    }
  }

  #choose(i) {
    this.chosen = i;
    const op = i >= 0 ? this.data.arrays.op[i] : -1;
    this.context.state.set({ op: op >= 0 ? op : null });
    this.#tell();
    this.chart.redraw();
  }

  #turn(i) {
    const { head, arrays } = this.data;
    const node = arrays.node[i];
    this.turned = i;
    if (arrays.kind[i] === MODULE) this.open([...head.open, node]);
    else if (arrays.kind[i] === OPENED) this.open(head.open.filter((n) => n !== node));
  }

  #selected(centre) {
    if (!this.data) return;
    const op = this.context.state.number("op");
    const { arrays } = this.data;
    if (op >= 0) {
      this.chosen = arrays.op.indexOf(op);
      if (this.chosen < 0) this.#openFor(op);
    } else if (this.chosen >= 0 && arrays.op[this.chosen] >= 0) this.chosen = -1;
    if (centre && this.chosen >= 0) this.#bring(this.chosen);
    this.#tell();
    this.chart.redraw();
  }

  /** Open what an operation is in, so that it is seen. */
  async #openFor(op) {
    if (this.context.source.isFrozen) return;
    const { head } = await this.context.ask("graph", { open: this.context.state.get("graph.open"), op });
    if (this.context.state.number("op") === op && openText(head.open) !== openText(this.data.head.open)) this.open(head.open);
  }

  #bring(i) {
    const { arrays } = this.data;
    const [x, y] = [arrays.x[i] * this.plane.scale + this.plane.x, arrays.y[i] * this.plane.scale + this.plane.y];
    if (x > 0 && y > 0 && x < this.chart.width - 60 && y < this.chart.height - 30) return;
    this.plane.centre(arrays.x[i] + arrays.w[i] / 2, arrays.y[i] + arrays.h[i] / 2, Math.max(this.plane.scale, 0.6));
  }

  #found() {
    const words = this.context.state.get("graph.find").toLowerCase().split(/\s+/).filter(Boolean);
    const labels = this.data?.head.labels ?? [];
    this.hits = words.length ? labels.map((label, i) => i).filter((i) => words.every((w) => labels[i].toLowerCase().includes(w))) : [];
    this.hit = -1;
    this.hitSet = words.length ? new Set(this.hits) : null;
  }

  #next() {
    if (!this.hits?.length) return;
    this.hit = (this.hit + 1) % this.hits.length;
    this.#choose(this.hits[this.hit]);
    this.#bring(this.hits[this.hit]);
  }

  #key(event) {
    if (!this.data || !this.data.arrays.node.length) return;
    const n = this.data.arrays.node.length;
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (event.key in steps) {
      this.#choose((((this.chosen ?? -1) + steps[event.key]) % n + n) % n);
      this.#bring(this.chosen);
    } else if ((event.key === "Enter" || event.key === " ") && this.chosen >= 0) {
      this.#turn(this.chosen);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #value(i, name) {
    const { head, arrays } = this.data;
    return arrays.metric[i * head.metrics.length + head.metrics.indexOf(name)];
  }

  #show(name, value) {
    if (name === "balance") return percent(value);
    return name.endsWith("_bytes") ? bytes(value, this.context.state.get("unit", "auto")) : name === "flops" ? short(value) : count(value);
  }

  /** Names of the modules around a node, outermost first. */
  #around(i) {
    const { head, arrays } = this.data;
    const names = [];
    for (let at = arrays.around[i]; at >= 0; at = arrays.around[at]) names.unshift(head.labels[at]);
    return names;
  }

  #brief(name, value) {
    return name === "cycles" ? `${short(value)} cycles` : this.#show(name, value);
  }

  #hover(event) {
    if (event.buttons) return hideTip();
    const i = this.#under(event);
    this.chart.canvas.style.cursor = i >= 0 ? "pointer" : "grab";
    if (i < 0) return hideTip();
    const { head, arrays } = this.data;
    return tip(event, [head.labels[i], ...(arrays.kind[i] === OP ? [] : [["operations", count(arrays.count[i])]]), ...head.metrics.map((m) => [METRICS[m], this.#show(m, this.#value(i, m))]), arrays.kind[i] === OP ? "" : "double-click opens and closes"].filter(Boolean));
  }

  /** What is told of the node that is chosen. */
  #tell() {
    if (this.ofTile) return;
    const i = this.chosen ?? -1;
    if (!this.data || i < 0 || i >= this.data.arrays.node.length) {
      fill(this.details, this.data && !this.data.arrays.node.length ? empty("This report has no operations.") : [empty("Select an operation or a module. The wheel zooms, a drag moves, a double-click opens a module."), this.#table()]);
      return;
    }
    const { head, arrays } = this.data;
    const { context } = this;
    const unit = context.state.get("unit", "auto");
    const flows = (mine, other) => this.edges[i].filter((e) => arrays[mine][e] === i).map((e) => ({ e, node: arrays[other][e] })).sort((a, b) => arrays.bytes[b.e] - arrays.bytes[a.e]);
    const table = (title, rows) => part(`${title} ${count(rows.length)}`, rows.length ? listing(title, [
      ["node", (r) => h("button.link", { onclick: () => { this.#choose(r.node); this.#bring(r.node); } }, `${arrays.round[r.e] ? "↻ " : ""}${head.labels[r.node]}`)],
      ["tensor", (r) => (head.tensors[r.e] ? h("span", { title: head.tensors[r.e] }, `${head.tensors[r.e].split("\n")[1]}${arrays.num[r.e] > 1 ? ` and ${arrays.num[r.e] - 1} more` : ""}`) : "order")],
      ["bytes", (r) => (arrays.bytes[r.e] ? bytes(arrays.bytes[r.e], unit) : ""), true],
    ], rows.slice(0, 60)) : h("p.dim", {}, "none"));
    const op = arrays.op[i];
    fill(this.details,
      part(head.labels[i], facts([
        ["is", ["an operation", "a module", "a module, open", "the cheapest others of a module"][arrays.kind[i]]],
        ["in", this.#around(i).join(" › ")],
        ["operations", arrays.kind[i] === OP ? "" : count(arrays.count[i])],
        ...head.metrics.map((m) => [METRICS[m], this.#value(i, m) ? this.#show(m, this.#value(i, m)) : ""]),
      ])),
      h("div.links", {}, op >= 0 ? link(context, "operation", "operations", { op }) : null,
        arrays.kind[i] === MODULE || arrays.kind[i] === OPENED ? h("button.link", { onclick: () => this.#turn(i) }, arrays.kind[i] === MODULE ? "open" : "close") : null),
      table("Comes from", flows("to", "from")), table("Goes to", flows("from", "to")));
  }

  /** The nodes as a table, for those who do not see the picture. */
  #table() {
    if (!this.data) return null;
    const { head, arrays } = this.data;
    const rows = [...arrays.node.keys()].filter((i) => arrays.kind[i] !== OPENED).sort((a, b) => this.#value(b, "cycles") - this.#value(a, "cycles")).slice(0, 40);
    return rows.length ? part("Most cycles", listing("Nodes with most cycles", [["node", (i) => h("button.link", { onclick: () => { this.#choose(i); this.#bring(i); } }, head.labels[i])], ["cycles", (i) => this.#value(i, "cycles"), true]], rows)) : null;
  }

  #draw(context, size) {
    if (!this.data) return;
    const { state } = this.context;
    drawGraph(context, size, {
      data: this.data, edges: this.edges, most: this.most, chosen: this.chosen, hits: this.hitSet, plane: this.plane, metric: state.get("graph.metric", "cycles"),
      names: state.get("graph.labels") === "1", rounds: state.get("graph.round", "1") === "1", brief: (name, value) => this.#brief(name, value),
    });
  }
}
