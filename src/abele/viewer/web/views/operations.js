// Operations: a table with chosen columns or groups with sums, and everything about the one that is selected.

import { facts, link, listing, part, shareBar, source, untold } from "abele/core/detail.js";
import { fill, h } from "abele/core/dom.js";
import { bytes, count, percent, seconds, short } from "abele/core/format.js";
import { partTitle } from "abele/core/part_titles.js";
import { choice, empty, failure, figure, panel, shares, tabs } from "abele/core/parts.js";
import { DataTable, fits, sorted } from "abele/core/table.js";
import { theme } from "abele/core/theme.js";
import { TreeTable } from "abele/core/tree.js";
import { roofline } from "abele/views/roofline.js";

const GROUPS = [["none", "each"], ["path", "by module"], ["kind", "by kind"], ["source", "by source line"], ["block", "by block"]];
const CYCLES = ["compute", "exchange", "sync", "host"];

/** Columns of both tables: how values are shown. */
function columns(context) {
  const size = (v) => (v ? bytes(v, context.state.get("unit", "auto")) : "");
  const some = (show) => (v) => (v ? show(v) : "");
  return [
    { name: "cycles", right: true, width: 112, show: count },
    { name: "share", title: "%", right: true, width: 58, show: percent },
    ...CYCLES.map((p) => ({ name: `${p}_cycles`, title: partTitle(p), right: true, width: 92, show: some(count) })),
    { name: "flops", title: "FLOP", right: true, width: 76, show: some(short) },
    { name: "flops_per_second", title: "FLOP/s", right: true, width: 76, show: some(short), hidden: true },
    { name: "intensity", title: "FLOP/B", right: true, width: 66, show: some(short), hidden: true },
    { name: "balance", title: "balance", right: true, width: 66, show: some(percent) },
    { name: "moved_bytes", title: "moved", right: true, width: 78, show: size },
    { name: "read_bytes", title: "read", right: true, width: 78, show: size, hidden: true },
    { name: "written_bytes", title: "written", right: true, width: 78, show: size, hidden: true },
    { name: "num_vertices", title: "vertices", right: true, width: 84, show: some(short), hidden: true },
    { name: "num_steps", title: "steps", right: true, width: 60, show: count, hidden: true },
    { name: "code_bytes", title: "code", right: true, width: 72, show: size },
    { name: "vertex_state_bytes", title: "state", right: true, width: 78, show: size },
    { name: "exchange_code_bytes", title: "x code", right: true, width: 78, show: size },
    { name: "control_code_bytes", title: "control", right: true, width: 78, show: size, hidden: true },
    { name: "vertex_code_bytes", title: "new code", right: true, width: 78, show: size, hidden: true },
    { name: "executions", title: "×", right: true, width: 60, show: count, hidden: true },
  ];
}

export function mount(context, place) {
  const view = new OperationsView(context);
  fill(place, view.element);
  return {
    update: (changed) => view.update(changed),
    destroy: () => view.destroy(),
    get charts() { return view.charts; },
    commands: GROUPS.map(([name, title]) => ({ title: `Operations ${title}`, run: () => context.state.set({ "operations.by": name === "none" ? null : name }) })),
  };
}

class OperationsView {
  constructor(context) {
    this.context = context;
    this.charts = [];
    this.asked = 0;
    const { state } = context;
    this.totals = h("div.figures.totals");
    this.list = h("div.fill.lists");
    this.by = choice("Group", GROUPS, state.get("operations.by", "none"), (by) => state.set({ "operations.by": by === "none" ? null : by }));
    this.details = h("div.fill.lists");
    this.element = h("div.beside", {}, panel("Operations", [this.totals, this.list], this.by), panel("Operation", this.details));
    this.#list();
    this.#selected();
  }

  destroy() {
    this.table?.destroy();
    for (const chart of this.charts) chart.destroy();
  }

  update(changed) {
    const { state } = this.context;
    if (changed.has("reports")) this.points = null;
    if (changed.has("operations.by") || changed.has("reports") || changed.has("unit")) {
      this.by.show(state.get("operations.by", "none"));
      this.#list();
    } else if (changed.has("op")) {
      this.#mark();
    }
    if (changed.has("op") || changed.has("reports") || changed.has("unit") || changed.has("theme")) this.#selected();
  }

  #mark() {
    const op = this.context.state.number("op");
    if (this.table instanceof DataTable) this.table.select(op);
    else this.table?.select(this.nodes ? this.nodes.indexOf(op) : -1);
  }

  async #list() {
    const by = this.context.state.get("operations.by", "none");
    this.table?.destroy();
    this.table = null;
    this.nodes = null;
    if (by === "none") {
      this.#flat();
    } else {
      try {
        const answer = await this.context.ask("operations.groups", { by });
        if (this.context.state.get("operations.by", "none") !== by) return;
        this.#grouped(answer);
      } catch (error) {
        fill(this.list, failure(error));
        return;
      }
    }
    this.#mark();
  }

  #flat() {
    const { context } = this;
    const { state } = context;
    this.table = new DataTable({
      label: "operations",
      sort: state.get("operations.sort", "-cycles"),
      filter: state.get("operations.filter"),
      columns: [
        { name: "path", title: "module", width: 190 }, { name: "name", title: "operation" }, { name: "kind", width: 120 }, ...columns(context),
        { name: "block", width: 120, hidden: true },
        { name: "file", title: "source", width: 190, show: (v, row) => source(v, row.line) },
      ],
      page: (query) => this.#page(query),
      pick: (row) => state.set({ op: row.row }),
      changed: ({ filter, sort }) => state.set({ "operations.filter": filter || null, "operations.sort": sort === "-cycles" ? null : sort }),
    });
    fill(this.list, this.table.element);
  }

  /** Rows with their sums, which are shown above the table. */
  async #page({ filter, sort, first, count: most }) {
    const frozen = this.context.source.isFrozen;
    const { head, arrays } = await this.context.ask("operations", frozen ? { sort: "-cycles", count: 2000 } : { filter, sort, first, count: most });
    for (const column of this.table.columns) {
      const told = head.columns.find((c) => c.name === column.name);
      if (told && !column.doc) column.doc = told.doc;
    }
    let rows = Array.from({ length: arrays.row.length }, (_, i) => {
      const row = { row: arrays.row[i] };
      for (const { name, text } of head.columns) row[name] = text ? head.text[name][i] : arrays[name][i];
      return row;
    });
    let { sums } = head;
    if (frozen) {
      rows = sorted(rows.filter((row) => fits(row, filter)), sort);
      sums = Object.fromEntries(Object.keys(sums).map((name) => [name, rows.reduce((sum, row) => sum + row[name], 0)]));
    }
    this.#sums(frozen ? rows.length : head.found, head.total, sums);
    return frozen ? { total: head.total, found: rows.length, rows: rows.slice(first, first + most) } : { total: head.total, found: head.found, rows };
  }

  #sums(found, total, sums) {
    const colours = theme().parts;
    const unit = this.context.state.get("unit", "auto");
    fill(this.totals,
      figure(count(sums.cycles), found === total ? "cycles of all operations" : `cycles of ${count(found)} operations`),
      figure(percent(sums.share), "of the run"),
      figure(short(sums.flops), "FLOP"),
      figure(bytes(sums.moved_bytes, unit), "moved"),
      h("div.grow", {}, shares(CYCLES.map((p) => [colours[p], partTitle(p), sums[`${p}_cycles`]]), Math.max(1, sums.cycles))));
  }

  #grouped({ head, arrays }) {
    const { context } = this;
    const { state } = context;
    const at = (name) => head.columns.indexOf(name);
    const width = head.columns.length;
    const value = (i, name) => arrays.sums[i * width + at(name)];
    this.nodes = Array.from(arrays.op);
    const colours = theme().parts;
    const whole = Math.max(1, arrays.depth.length ? Array.from(arrays.depth).reduce((sum, d, i) => (d ? sum : sum + value(i, "cycles")), 0) : 1);
    this.table = new TreeTable({
      label: "operations in groups", title: GROUPS.find(([n]) => n === head.by)[1], filter: state.get("operations.filter"), sort: state.get("operations.sort", "-cycles"),
      name: (i) => h("span", {}, head.names[arrays.name[i]], arrays.op[i] < 0 ? h("span.dim", {}, ` ${count(arrays.count[i])}`) : ""),
      text: (i) => head.names[arrays.name[i]],
      pick: (i) => (arrays.op[i] >= 0 ? state.set({ op: arrays.op[i] }) : this.table.turn(i)),
      changed: ({ filter, sort }) => state.set({ "operations.filter": filter || null, "operations.sort": sort === "-cycles" ? null : sort }),
      columns: [
        { name: "bar", title: "", width: 110, show: (i) => shareBar(CYCLES.map((p) => [colours[p], value(i, `${p}_cycles`)]), whole) },
        ...columns(context).filter((c) => at(c.name) >= 0).map((c) => ({ ...c, show: (i) => c.show(value(i, c.name)), value: (i) => value(i, c.name) })),
      ],
    });
    fill(this.list, this.table.element);
    this.table.fill(arrays.depth, arrays.size, { level: head.by === "path" ? 2 : 0 });
    const sums = Object.fromEntries(head.columns.map((name) => [name, Array.from(arrays.depth).reduce((sum, d, i) => (d ? sum : sum + value(i, name)), 0)]));
    const ops = this.nodes.filter((op) => op >= 0).length;
    this.#sums(ops, ops, sums);
  }

  async #selected() {
    const op = this.context.state.number("op");
    this.asked += 1;
    const mine = this.asked;
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    if (!(op >= 0)) {
      fill(this.details, h("p.dim", {}, "Select an operation: its steps, code, cycles and variables are told here. All of them against the peaks of the machine:"), await this.#roofline());
      return;
    }
    try {
      const answer = await this.context.ask("operation", { op });
      if (mine === this.asked) fill(this.details, this.#tabs(answer));
    } catch (error) {
      if (mine === this.asked) fill(this.details, failure(error));
    }
  }

  async #roofline() {
    const { context } = this;
    try {
      const { head, arrays } = await context.ask("roofline");
      const { f8_flops_per_second: f8, f16_flops_per_second: f16, f32_flops_per_second: f32, exchange_bytes_per_second: exchange, memory_bytes_per_second: memory } = head.peaks;
      if (!arrays.op.length || !(exchange > 0)) return empty("No operation of this report counts floating-point operations.");
      const local = context.state.get("operations.roof") === "memory" && memory > 0;
      const intensity = local ? arrays.local : arrays.intensity;
      const points = Array.from(arrays.op, (op, i) => ({ op, title: head.names[i], intensity: intensity[i], rate: arrays.rate[i], cycles: arrays.cycles[i] }));
      const peaks = [["float8", f8], ["float16", f16], ["float32", f32]].filter(([, peak]) => peak > 0);
      const data = () => ({ points, bandwidth: local ? memory : exchange, axis: local ? "of memory" : "exchanged", peaks });
      const chart = roofline({ data, chosen: () => context.state.number("op"), pick: (op) => context.state.set({ op }) });
      chart.describe(`Roofline of ${count(points.length)} operations: FLOP/s against FLOP for each byte ${data().axis}`);
      this.charts.push(chart);
      const box = h("div.fill.lists.roof", {}, choice("Bytes", [["moved", "exchanged"], ["memory", "in memory"]], local ? "memory" : "moved", async (v) => {
        context.state.set({ "operations.roof": v === "moved" ? null : v });
        box.replaceWith(await this.#roofline());
      }), chart.element);
      return box;
    } catch (error) {
      return failure(error);
    }
  }

  #tabs(answer) {
    const { head, arrays } = answer;
    const { context } = this;
    const f = head.facts;
    const unit = context.state.get("unit", "auto");
    const size = (v) => bytes(v, unit);
    const flops = () => {
      const box = h("div.fill.lists");
      this.#roofline().then((chart) => fill(box, facts([
        ["FLOP", short(f.flops)], ["rate", `${short(f.flops_per_second)}FLOP/s`],
        ["for each byte moved", f.intensity ? short(f.intensity) : "moves nothing"],
      ]), chart));
      return box;
    };
    const entries = [
      ["summary", "Summary", () => h("div.told", {}, this.#summary(answer, size))],
      ["steps", `Steps ${count(head.num_steps)}`, () => h("div.told", {}, head.num_steps > head.steps.length ? h("p.dim", {}, `the first ${count(head.steps.length)} of ${count(head.num_steps)}`) : null, listing("Steps of the operation", [
        ["step", (s) => h("button.link", { onclick: () => context.go("program", { step: s.step }) }, s.name.slice(s.name.lastIndexOf("/", s.name.includes(": ") ? s.name.indexOf(": ") : undefined) + 1))], ["kind", (s) => s.kind], ["cycles", (s) => s.cycles, true], ["×", (s) => s.executions, true], ["moved", (s) => (s.exchanged_bytes ? size(s.exchanged_bytes) : ""), true], ["balance", (s) => (s.compute_cycles ? percent(s.tile_balance) : ""), true],
      ], head.steps))],
      ["code", "Code", () => h("div.told", {}, head.vertices === null ? untold() : listing("Code by codelet", [
        ["codelet", (v) => v.name], ["kind", (v) => v.kind], ["code", (v) => size(v.code_bytes), true], ["vertices", (v) => v.num_vertices, true], ["tiles", (v) => v.tiles, true], ["state", (v) => size(v.state_bytes), true], ["cycles", (v) => short(v.cycles), true], ["source", (v) => source(v.file, v.line)],
      ], head.vertices))],
      ["flops", "FLOPs", flops],
      ["variables", "Variables", () => h("div.told", {}, head.variables === null ? untold() : listing("Variables of the operation", [
        ["variable", (v) => link(context, v.name, "memory", { variable: v.variable })], ["type", (v) => `${v.type}${v.shape ? ` [${v.shape}]` : ""}`], ["bytes", (v) => size(v.bytes), true], ["reads", (v) => (v.read ? size(v.read) : ""), true], ["writes", (v) => (v.written ? size(v.written) : ""), true],
      ], head.variables))],
      ["source", "Source", () => h("div.told", {}, this.#path(head, arrays))],
    ];
    return [h("h3.opname", {}, f.name), tabs("Operation", entries, context.state.get("operations.tab", "summary"), (tab) => context.state.set({ "operations.tab": tab === "summary" ? null : tab }))];
  }

  #summary({ head, arrays }, size) {
    const { context } = this;
    const f = head.facts;
    const colours = theme().parts;
    const told = head.parts.map((p, k) => [colours[p], partTitle(p), arrays.cycles[k]]).filter(([, , v]) => v > 0);
    return [
      told.length ? shares(told, told.reduce((sum, [, , v]) => sum + v, 0)) : null,
      facts([
        ["kind", f.kind],
        ["cycles", `${count(f.cycles)} (${percent(f.share)} of the run), ${seconds(context.seconds(f.cycles))}`],
        ...told.map(([, p, v]) => [p, `${count(v)} cycles (${percent(v / Math.max(1, f.cycles))})`]),
        ["executions", count(f.executions)],
        ["balance of tiles", f.balance ? percent(f.balance) : ""],
        ["FLOP", f.flops ? `${short(f.flops)}, ${short(f.flops_per_second)}FLOP/s` : ""],
        ["FLOP for each byte moved", f.intensity ? short(f.intensity) : ""],
        ["moved", f.moved_bytes ? size(f.moved_bytes) : ""],
        ["reads, writes", f.read_bytes || f.written_bytes ? `${size(f.read_bytes)}, ${size(f.written_bytes)}` : ""],
        ["code", f.code_bytes ? size(f.code_bytes) : ""],
        ["on all tiles: vertex state", f.vertex_state_bytes ? size(f.vertex_state_bytes) : ""],
        ["exchange code", f.exchange_code_bytes ? size(f.exchange_code_bytes) : ""],
        ["control code", f.control_code_bytes ? size(f.control_code_bytes) : ""],
        ["vertex code that nothing before has", f.vertex_code_bytes ? size(f.vertex_code_bytes) : ""],
        ["module", f.path],
        ["block", f.block],
        ["source", source(f.file, f.line)],
      ]),
      h("div.links", {}, link(context, "program", "program", { step: head.steps[0]?.step }), link(context, "graph", "graph", { op: head.op }), link(context, "timeline", "timeline", { step: head.steps[0]?.step })),
    ];
  }

  /** The way from the line of Python to the tiles. */
  #path(head, arrays) {
    const { context } = this;
    const f = head.facts;
    const tiles = arrays.count.reduce((a, b) => a + b, 0);
    const runs = Array.from(arrays.first, (first, i) => ({ first, count: arrays.count[i], busy: arrays.busy[i] })).sort((a, b) => b.busy - a.busy).slice(0, 12);
    const named = ({ first, count: n }) => (n > 1 ? `${first}-${first + n - 1}` : `${first}`);
    return [
      part("Python", h("p", {}, source(f.file, f.line) || h("span.dim", {}, "The report knows no source line."))),
      part("Modules", h("p", {}, head.modules.length ? head.modules.join(" › ") + (head.module_kind ? ` (${head.module_kind})` : "") : h("span.dim", {}, "outside of modules"))),
      part("Operation", h("p", {}, `${f.name}: ${f.kind}`)),
      part("Steps", head.steps.length ? listing("Steps", [["step", (s) => link(context, s.name, "program", { step: s.step })], ["cycles", (s) => s.cycles * s.executions, true]], [...head.steps].sort((a, b) => b.cycles * b.executions - a.cycles * a.executions).slice(0, 8)) : h("p.dim", {}, "none")),
      part(`Tiles: ${count(tiles)} compute`, runs.length ? listing("Busiest tiles", [["tiles", (r) => link(context, named(r), "memory", { tiles: named(r) })], ["cycles per run", (r) => r.busy, true]], runs) : h("p.dim", {}, "none")),
    ];
  }
}
