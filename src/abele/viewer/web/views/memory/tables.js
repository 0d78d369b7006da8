// Tables of what selected tiles hold and do: variables, gaps, compute sets, exchanges.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, short } from "abele/core/format.js";
import { DataTable } from "abele/core/table.js";
import { askedRows } from "abele/views/memory/rows.js";

const MOST_DRAWN = 8;

function tab(context, chosen, how, above = null) {
  const table = new DataTable(how);
  let of = chosen.text;
  let unit = context.state.get("unit");
  return {
    element: h("div.filled", {}, above, table.element),
    table,
    update() {
      if (chosen.text !== of || context.state.get("unit") !== unit) table.refresh();
      of = chosen.text;
      unit = context.state.get("unit");
      table.select(context.state.number(how.selects));
    },
    destroy: () => table.destroy(),
  };
}

/** Variables on the selected tiles; those that are ticked are drawn. */
export function variablesTab(context, chosen) {
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  const drawn = () => context.state.get("memory.variables").split(",").filter(Boolean).map(Number);
  const note = h("span.dim");
  const tick = (row, on) => {
    const rows = drawn().filter((each) => each !== row);
    if (on) rows.push(row);
    context.state.set({ "memory.variables": rows.slice(-MOST_DRAWN).join(",") || null, "memory.kind": rows.length ? "variables" : null });
  };
  const found = tab(context, chosen, {
    label: "variables", selects: "variable", sort: context.state.get("memory.sort", "-here"), filter: context.state.get("memory.filter"),
    placeholder: "filter: words, here>1000, type=f32 …",
    columns: [
      { name: "drawn", title: "plot", width: 46, show: (_, row) => h("input", {
        type: "checkbox", checked: drawn().includes(row.row), "aria-label": `Plot ${row.name}`,
        onclick: (event) => event.stopPropagation(), onchange: (event) => tick(row.row, event.target.checked),
      }) },
      { name: "name", title: "variable" },
      { name: "here", title: "here", right: true, width: 92, show: size, doc: "bytes on the selected tiles" },
      { name: "each", title: "per tile", right: true, width: 92, show: size, doc: "mean bytes on those of the selected tiles that hold part of it" },
      { name: "on", title: "on tiles", right: true, width: 80, show: count, doc: "how many of the selected tiles hold part of it" },
      { name: "gap", title: "gap", right: true, width: 70, show: (v) => (v ? size(v) : "·"), doc: "bytes of gaps behind it on these tiles" },
      { name: "bytes", title: "in all", right: true, width: 92, show: size, doc: "bytes over all tiles" },
      { name: "tiles", title: "of tiles", right: true, width: 80, show: count, hidden: true, doc: "tiles that hold part of it, of all" },
      { name: "type", title: "type", width: 64 },
      { name: "always_live", title: "lives", width: 110, show: (v, row) => (v ? "always" : `${count(row.first_step)} – ${count(row.last_step)}`), doc: "steps at which it lives" },
      { name: "first_step", title: "from step", right: true, width: 90, hidden: true },
      { name: "last_step", title: "to step", right: true, width: 90, hidden: true },
    ],
    page: askedRows(context, "memory.variables", () => ({ tiles: chosen.text }), { sort: "-here", count: 2000 }),
    pick: (row) => context.state.set({ variable: row.row }),
    changed: ({ filter, sort }) => context.state.set({ "memory.filter": filter || null, "memory.sort": sort === "-here" ? null : sort || null }),
  }, h("div.bar.tab-bar", {}, note, h("span.grow"),
    h("button.small", { onclick: () => tick(context.state.number("variable"), true), title: "Plot the selected variable" }, "plot"),
    h("button.small", { onclick: () => context.state.set({ tiles: `variable ${context.state.number("variable")}` }), title: "Select the tiles that hold the selected variable" }, "its tiles"),
    h("button.small", { onclick: () => context.go("liveness", {}), title: "When it lives" }, "lifetime"),
    h("button.small", { onclick: () => context.state.set({ "memory.variables": null, "memory.kind": null }) }, "plot none")));
  const { update } = found;
  let shown = "";
  return {
    ...found,
    update() {
      update();
      const rows = drawn();
      if (shown !== rows.join()) found.table.redraw();
      shown = rows.join();
      fill(note, rows.length ? `${count(rows.length)} of at most ${MOST_DRAWN} plotted` : "Tick variables to plot their bytes by tile.");
      const none = !Number.isFinite(context.state.number("variable"));
      for (const button of [...found.element.querySelectorAll(".tab-bar button")].slice(0, 3)) button.disabled = none;
    },
  };
}

/** Gaps: variables behind which there is room that nothing uses. */
export function gapsTab(context, chosen) {
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  return tab(context, chosen, {
    label: "gaps", selects: "variable", sort: "-gap", filter: "gap>0", placeholder: "filter: words, gap>100",
    columns: [
      { name: "name", title: "variable" },
      { name: "gap", title: "gap", right: true, width: 110, show: size, doc: "bytes behind it that nothing uses, on the selected tiles" },
      { name: "here", title: "its bytes", right: true, width: 110, show: size },
      { name: "on", title: "on tiles", right: true, width: 90, show: count },
      { name: "type", width: 70 },
      { name: "why", title: "why", width: 420, show: (_, row) => why(row) },
    ],
    page: askedRows(context, "memory.variables", () => ({ tiles: chosen.text }), { sort: "-here", count: 2000 }),
    pick: (row) => context.state.set({ variable: row.row }),
  }, h("p.dim", {}, "A variable's part on a tile is filled up to whole words. Gaps that alignment and memory elements leave besides are in the tree of the tab of tiles, under gaps."));
}

/** Operations with state or code on the selected tiles. */
export function codeTab(context, chosen) {
  const size = (value) => (value ? bytes(value, context.state.get("unit", "auto")) : "·");
  const part = (name, title, doc) => ({ name, title, right: true, width: 104, show: size, doc });
  return tab(context, chosen, {
    label: "state and code", selects: "op", sort: "-here", placeholder: "filter: words, exchange_code>1000, kind=poplin.matmul …",
    columns: [
      { name: "name", title: "operation" },
      { name: "here", title: "here", right: true, width: 104, show: size, doc: "bytes of state and code on the selected tiles" },
      part("vertex_state", "vertex state", "records of its vertices"),
      part("exchange_code", "exchange code", "exchange instructions"),
      part("control_code", "control code", "code of its steps"),
      part("vertex_code", "vertex code", "codelets that no operation before it has there"),
      { name: "kind", width: 130 },
      { name: "path", title: "module", width: 220 },
    ],
    page: askedRows(context, "memory.code", () => ({ tiles: chosen.text }), { sort: "-here", count: 2000 }),
    pick: (row) => context.state.set({ op: row.row }),
  }, h("div.bar.tab-bar", {}, h("span.dim", {}, "What operations share counts for the first of them, so that the sums are the categories."), h("span.grow"),
    h("button.small", { onclick: () => context.state.set({ "memory.metric": "operation" }), title: "Colour the floor plan by state and code of the selected operation" }, "floor plan"),
    h("button.small", { onclick: () => context.go("operations") }, "operation")));
}

/** The reason of a gap in words, as far as figures tell. */
export function why(row) {
  if (!row.gap) return "";
  const each = row.gap / Math.max(1, row.on);
  const size = row.here / Math.max(1, row.on);
  const much = `${short(each)} B per tile: ${short(size)} B do not fill whole words`;
  return row.alignment_bytes > 0 ? `${much}; vertices want it aligned to ${count(row.alignment_bytes)} B` : much;
}

/** Steps that compute on the selected tiles, or that exchange there. */
export function stepsTab(context, chosen, of) {
  const size = (value) => (value ? bytes(value, context.state.get("unit", "auto")) : "·");
  const compute = of === "compute";
  return tab(context, chosen, {
    label: compute ? "compute sets" : "exchanges", selects: "step", sort: compute ? "-compute_here" : "-received_here", placeholder: "filter: words, on>10",
    columns: [
      { name: "name", title: compute ? "compute set" : "exchange" },
      { name: "kind", width: 84 },
      ...(compute ? [{ name: "compute_here", title: "cycles here", right: true, width: 104, show: count, doc: "compute cycles on the slowest of the selected tiles, one execution" }] : []),
      { name: "received_here", title: "received", right: true, width: 92, show: size, doc: "bytes that these tiles receive in one execution" },
      { name: "sent_here", title: "sent", right: true, width: 92, show: size, doc: "bytes that these tiles send in one execution" },
      ...(compute ? [] : [{ name: "exchange_code", title: "its code", right: true, width: 92, show: size, doc: "bytes of its exchange code, on all tiles" }]),
      { name: "on", title: "on tiles", right: true, width: 80, show: count, doc: "how many of the selected tiles take part" },
      { name: "num_vertices", title: "vertices", right: true, width: 84, show: count, doc: "vertices of the step, on all tiles", hidden: !compute },
      { name: "active_tiles", title: "of tiles", right: true, width: 80, show: count, doc: "tiles with something to compute, of all" },
      { name: "executions", title: "times", right: true, width: 76, show: count },
      { name: "cycles", title: "step", right: true, width: 92, show: count, doc: "cycles of one execution of the step" },
    ],
    page: askedRows(context, "memory.steps", () => ({ tiles: chosen.text, of }), { of: undefined, sort: "-compute_here", count: 2000 },
      (row) => (compute ? row.compute_here > 0 : row.sent_here > 0 || row.received_here > 0)),
    pick: (row) => context.state.set({ step: row.row }),
  }, h("div.bar.tab-bar", {}, h("span.dim", {}, compute ? "Steps that run vertices on the selected tiles." : "Steps in which the selected tiles send or receive. How much exchange code each tile has is in the tree of categories."), h("span.grow"),
    h("button.small", { onclick: () => context.go("program") }, "program"),
    h("button.small", { onclick: () => context.go("timeline") }, "timeline"),
    h("button.small", { onclick: () => context.go("liveness") }, "liveness")));
}
