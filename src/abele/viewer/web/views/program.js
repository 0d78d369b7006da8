// The tree of control programs: what is inside what, what each subtree costs, and what a step does.

import { facts, link, listing, part, shareBar, source, untold } from "abele/core/detail.js";
import { fill, h } from "abele/core/dom.js";
import { bytes, count, cycles, percent, seconds, short } from "abele/core/format.js";
import { partTitle } from "abele/core/part_titles.js";
import { choice, empty, failure, legend, panel } from "abele/core/parts.js";
import { renewed } from "abele/core/renewed.js";
import { theme } from "abele/core/theme.js";
import { TreeTable, parents } from "abele/core/tree.js";

const STAGES = [["steps", "with steps"], ["written", "as written"]];

/**
 * Nodes without the steps that the compiler made.
 * @returns {Int32Array} the nodes that stay
 */
export function withoutSteps(isStep) {
  const left = [];
  for (let i = 0; i < isStep.length; i += 1) if (!isStep[i]) left.push(i);
  return Int32Array.from(left);
}

/** The level to which a tree opens at first: about a page of rows. */
export function fitting(depth, most = 40) {
  const counts = [];
  for (const d of depth) counts[d] = (counts[d] ?? 0) + 1;
  let rows = counts[0] ?? 0;
  let level = 0;
  while (level + 1 < counts.length && (level < 1 || rows + counts[level + 1] <= most)) {
    level += 1;
    rows += counts[level];
  }
  return level;
}

export const mount = (context, place) => renewed(context, place, ofReport);

async function ofReport(context, place) {
  const { state } = context;
  const { head, arrays } = await context.ask("program");
  const view = new ProgramView(context, head, arrays);
  fill(place, arrays.depth.length ? view.element : empty("This report has no steps.", "It holds what was compiled; a program that was not lowered has none."));
  view.start();
  return {
    update: (changed) => view.update(changed),
    destroy: () => view.tree.destroy(),
    charts: [],
    commands: [
      { title: "Open all of the program tree", run: () => view.tree.openTo(99) },
      { title: "Close all of the program tree", run: () => view.tree.openTo(0) },
      { title: "Program tree as written", run: () => state.set({ "program.stage": "written" }) },
      { title: "Program tree with steps", run: () => state.set({ "program.stage": null }) },
    ],
  };
}

class ProgramView {
  constructor(context, head, arrays) {
    Object.assign(this, { context, head, all: arrays });
    const { state } = context;
    this.node = (i) => this.nodes[i];
    this.details = h("div.told", { "aria-live": "polite" });
    this.asked = 0;
    this.tree = new TreeTable({
      label: "program tree", title: "step", placeholder: "search steps",
      filter: state.get("program.filter"), sort: state.get("program.sort"),
      name: (i) => this.#name(i),
      text: (i) => this.#text(i),
      pick: (i) => this.#pick(i),
      mark: (i) => this.#mark(i),
      changed: ({ filter, level, turned, sort }) => {
        if (!this.started) return;
        state.set({ "program.filter": filter || null, "program.level": level === this.level ? null : level, "program.turned": turned || null, "program.sort": sort || null });
      },
      columns: [
        { name: "bar", title: "of its parent", width: 140, doc: "what the cycles of all that is inside go to, loops counted, as a part of those of the node around it", show: (i) => this.#bar(i) },
        { name: "cycles", width: 92, right: true, doc: "cycles per run, loops counted", show: (i) => count(this.total[this.nodes[i]]), value: (i) => this.total[this.nodes[i]] },
        { name: "share", title: "%", width: 56, right: true, show: (i) => percent(this.total[this.nodes[i]] / this.whole), value: (i) => this.total[this.nodes[i]] },
        { name: "runs", title: "×", width: 52, right: true, doc: "executions per run", show: (i) => this.#times(i), value: (i) => this.all.executions[this.nodes[i]] },
      ],
    });
    this.total = new Float64Array(arrays.depth.length);
    const parts = head.parts.length;
    for (let i = 0; i < this.total.length; i += 1) for (let p = 0; p < parts; p += 1) this.total[i] += arrays.cycles[i * parts + p];
    this.above = parents(arrays.size);
    this.whole = Math.max(1, head.cycles.reduce((a, b) => a + b, 0));
    this.stage = choice("Stage", STAGES, state.get("program.stage", "steps"), (s) => state.set({ "program.stage": s === "steps" ? null : s }));
    const colours = theme();
    this.element = h("div.beside", {},
      panel("Program", [this.tree.element], legend(this.#parts().map((p) => [colours.parts[p], partTitle(p)])), head.told ? this.stage : h("span.dim", { title: "This report does not hold the program tree: what is inside what follows from blocks and scopes in the names of steps." }, "from names")),
      panel("Details", this.details));
  }

  start() {
    const { state } = this.context;
    this.level = fitting(this.all.depth);
    this.#stage({ level: state.number("program.level", this.level), turned: state.get("program.turned") });
    this.started = true;
    this.#selected(true);
  }

  update(changed) {
    if (changed.has("program.stage")) {
      this.stage.show(this.context.state.get("program.stage", "steps"));
      this.#stage({});
      this.#selected(true);
    }
    if (changed.has("step") || changed.has("op") || changed.has("program.node")) this.#selected(changed.has("step"));
    if (changed.has("theme") || changed.has("unit")) this.#selected(false);
  }

  /** Show the tree of a stage: with or without the steps. */
  #stage(how) {
    const { depth, size, is_step: isStep } = this.all;
    if (this.context.state.get("program.stage") !== "written" || !this.head.told) {
      this.nodes = Int32Array.from(depth, (_, i) => i);
      this.place = this.nodes;
      this.tree.fill(depth, size, how);
      return;
    }
    this.nodes = withoutSteps(isStep);
    this.place = new Int32Array(depth.length).fill(-1);
    this.nodes.forEach((node, i) => { this.place[node] = i; });
    const before = new Int32Array(depth.length + 1);
    for (let i = 0; i < depth.length; i += 1) before[i + 1] = before[i] + (isStep[i] ? 0 : 1);
    this.tree.fill(Uint8Array.from(this.nodes, (n) => depth[n]), Int32Array.from(this.nodes, (n) => before[n + size[n]] - before[n]), how);
  }

  /** The parts that the programs have cycles of. */
  #parts() {
    const n = this.head.parts.length;
    return this.head.parts.filter((_, k) => {
      for (let i = 0; i < this.total.length; i += 1) if (this.all.depth[i] === 0 && this.all.cycles[i * n + k] > 0) return true;
      return false;
    });
  }

  #name(i) {
    const node = this.nodes[i];
    const bar = h("i.kindbar");
    bar.style.background = theme().parts[this.head.parts[this.all.part[node]]];
    const kind = this.head.kinds[this.all.kind[node]];
    const title = this.head.titles[this.all.title[node]];
    const trips = this.all.count[node] > 1 ? ` ×${count(this.all.count[node])}` : "";
    const name = this.head.names[this.all.name[node]];
    return [bar, h("span", { title: this.#text(i) }, h("span.kind", {}, `${title && title !== "body" ? title + ": " : ""}${this.all.is_step[node] ? "" : kind + trips + " "}`), this.#short(node, name))];
  }

  /** A name without the scopes that the node around it has as well. */
  #short(node, name) {
    const cut = name.lastIndexOf("/", name.includes(": ") ? name.indexOf(": ") : name.length);
    return this.head.told && cut >= 0 ? name.slice(cut + 1) : name;
  }

  #text(i) {
    const node = this.nodes[i];
    return `${this.head.kinds[this.all.kind[node]]} ${this.head.names[this.all.name[node]]}`;
  }

  #bar(i) {
    const node = this.nodes[i];
    const { parts } = theme();
    const n = this.head.parts.length;
    return shareBar(this.head.parts.map((p, k) => [parts[p], this.all.cycles[node * n + k]]), this.above[node] >= 0 ? this.total[this.above[node]] : this.whole,
      this.head.parts.map((p, k) => [p, this.all.cycles[node * n + k]]).filter(([, v]) => v > 0).map(([p, v]) => `${partTitle(p)} ${count(v)}`).join(" · "));
  }

  #times(i) {
    const node = this.nodes[i];
    return this.all.executions[node] ? count(this.all.executions[node]) : "";
  }

  #mark(i) {
    const op = this.context.state.number("op");
    return op >= 0 && this.all.op[this.nodes[i]] === op ? "same" : "";
  }

  #pick(i) {
    const node = this.nodes[i];
    const { op, step, is_step: isStep } = this.all;
    this.context.state.set({ step: isStep[node] || this.all.num_steps[node] === 1 ? step[node] : null, op: op[node] >= 0 ? op[node] : null, "program.node": isStep[node] ? null : node });
  }

  /** The node that the state names: a node of its own, else the one of the step. */
  #chosen() {
    const { state } = this.context;
    const named = state.number("program.node");
    if (named >= 0 && named < this.all.depth.length) return named;
    const step = state.number("step");
    if (!(step >= 0)) return -1;
    let around = -1;
    for (let i = 0; i < this.all.depth.length; i += 1) {
      const first = this.all.step[i];
      if (first < 0 || step < first || step >= first + this.all.num_steps[i]) continue;
      if (this.all.is_step[i]) return i;
      around = i;
    }
    return around;
  }

  async #selected(reveal) {
    let node = this.#chosen();
    if (node >= 0 && this.place[node] < 0) node = this.above[node];
    this.tree.select(node >= 0 ? this.place[node] : -1, { reveal });
    this.asked += 1;
    const mine = this.asked;
    const step = this.context.state.number("step");
    if (node < 0 && !(step >= 0)) {
      fill(this.details, this.all.depth.length ? this.#ofNode(0) : null, h("p.dim", {}, "Select a step: what it runs, reads and writes is told here."));
      return;
    }
    const above = node >= 0 && !this.all.is_step[node] ? this.#ofNode(node) : [];
    if (!(step >= 0)) {
      fill(this.details, above);
      return;
    }
    try {
      const answer = await this.context.ask("step", { step });
      if (mine === this.asked) fill(this.details, above, this.#ofStep(answer));
    } catch (error) {
      if (mine === this.asked) fill(this.details, above, failure(error));
    }
  }

  /** Cycles of steps as a time; with several sync groups steps overlap, and the run is shorter. */
  time(cycles) {
    const text = seconds(this.context.seconds(cycles));
    return this.context.facts.rows.groups > this.context.facts.programs.length ? `${text} one after the other` : text;
  }

  #ofNode(node) {
    const { all, head, context } = this;
    const n = head.parts.length;
    const name = head.names[all.name[node]];
    const called = all.function[node];
    const links = [];
    if (called >= 0) {
      links.push(h("button.link", { onclick: () => context.state.set({ "program.node": called, step: null }) }, `function ${head.names[all.name[called]]}`));
    }
    const calls = [];
    if (head.kinds[all.kind[node]] === "Function") {
      for (let i = 0; i < all.function.length; i += 1) if (all.function[i] === node) calls.push(i);
    }
    return [
      part(`${head.kinds[all.kind[node]]} ${name}`, facts([
        ["cycles", `${count(this.total[node])} (${percent(this.total[node] / this.whole)}), ${this.time(this.total[node])}`],
        ...head.parts.map((p, k) => [partTitle(p), all.cycles[node * n + k] ? `${count(all.cycles[node * n + k])} (${percent(all.cycles[node * n + k] / this.total[node])})` : ""]),
        ["steps", all.num_steps[node] ? count(all.num_steps[node]) : ""],
        ["trips", all.count[node] > 1 ? count(all.count[node]) : ""],
        ["calls", links.length ? links : ""],
      ])),
      calls.length ? part(`Called at ${count(calls.length)} place${calls.length === 1 ? "" : "s"}`, h("div.links", {}, calls.slice(0, 60).map((i) => h("button.link", { onclick: () => context.state.set({ "program.node": i, step: null }) }, `row ${i}: ${head.names[all.name[i]] || "call"}`)))) : null,
    ];
  }

  #ofStep({ head }) {
    const { context } = this;
    const unit = context.state.get("unit", "auto");
    const size = (v) => bytes(v, unit);
    const f = head.facts;
    const total = f.cycles * f.executions;
    const moves = head.moves;
    const busy = (m, show) => (m && m.most ? h("span", {}, `${show(m.most)} on `, link(context, `tile ${m.tile}`, "memory", { tiles: m.tile }), `; ${count(m.tiles)} tiles, ${show(m.total)} in all`) : "");
    return [
      part(f.name, facts([
        ["kind", `${f.kind}${f.partner ? ` with ${f.partner}` : ""}${f.basis !== "static" ? `, ${f.basis}` : ""}`],
        ["cycles", `${count(f.cycles)} × ${count(f.executions)} = ${count(total)} (${percent(total / this.whole)})`],
        ["time", this.time(total)],
        ...["compute", "exchange", "sync", "host"].map((p) => [partTitle(p), f[`${p}_cycles`] ? `${count(f[`${p}_cycles`])} cycles` : ""]),
        ["balance", f.compute_cycles ? percent(f.tile_balance) : ""],
        ["vertices", f.num_vertices ? `${count(f.num_vertices)} on ${count(f.active_tiles)} tiles` : ""],
        ["moved", f.exchanged_bytes ? `${size(f.exchanged_bytes)}; one tile receives up to ${size(f.max_receive_bytes)}` : ""],
        ["computes", busy(moves?.compute_cycles, (v) => cycles(v))],
        ["sends", busy(moves?.sent_bytes, size)],
        ["receives", busy(moves?.received_bytes, size)],
        ["block", f.block],
        ["groups", head.groups.join(", ")],
        ["superstep", f.superstep >= 0 ? count(f.superstep) : ""],
        ["exchange code", head.superstep?.exchange_code_bytes ? size(head.superstep.exchange_code_bytes) : ""],
        ["source", source(head.superstep?.file || head.op?.file, head.superstep?.file ? head.superstep.line : head.op?.line)],
      ])),
      h("div.links", {},
        head.op ? link(context, `operation ${head.op.name} (${count(head.same_op)} steps)`, "operations", { op: f.op }) : null,
        link(context, "timeline", "timeline", { step: head.step }),
        f.exchange_cycles || f.exchanged_bytes ? link(context, "who sends to whom", "exchange", { step: head.step }) : null,
        link(context, "matrix", "matrix", { step: head.step }),
        link(context, "liveness", "liveness", { step: head.step })),
      part("Vertices", head.vertices === null ? untold() : head.vertices.length ? listing("Vertices by codelet", [
        ["codelet", (v) => v.name], ["vertices", (v) => v.num_vertices, true], ["tiles", (v) => v.tiles, true], ["cycles", (v) => short(v.cycles), true],
        ["slowest", (v) => v.max_cycles, true], ["state", (v) => size(v.state_bytes), true], ["code", (v) => size(v.code_bytes), true],
      ], head.vertices) : h("p.dim", {}, "none")),
      part("Variables", head.variables === null ? untold() : head.variables.length ? listing("Variables read and written", [
        ["variable", (v) => link(context, v.name, "memory", { variable: v.variable })], ["type", (v) => `${v.type}${v.shape ? ` [${v.shape}]` : ""}`],
        ["reads", (v) => (v.read ? size(v.read) : ""), true], ["writes", (v) => (v.written ? size(v.written) : ""), true],
      ], head.variables) : h("p.dim", {}, "none")),
    ];
  }
}
