// What lives at the selected steps: variables with a column for each step and differences, and groups of them.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, percent, signed } from "abele/core/format.js";
import { choice, failure } from "abele/core/parts.js";
import { DataTable } from "abele/core/table.js";
import { askedRows } from "abele/views/memory/rows.js";

/** Variables that live at the steps and not always. */
export function variablesNow(context, { steps, params }) {
  const element = h("div.filled");
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  let table = null;
  let of = "";
  const columns = () => [
    { name: "name", title: "variable" },
    ...steps().flatMap((step, i) => [
      { name: `live${i}`, title: `step ${count(step)}`, right: true, width: 104, show: (v) => (v ? size(v) : h("span.dim", {}, "·")) },
      ...(i ? [{ name: `more${i}`, title: `− ${count(steps()[0])}`, right: true, width: 96, show: (_, row) => change(row[`live${i}`] - row.live0, size), doc: "difference to the first of the selected steps" }] : []),
    ]),
    { name: "type", width: 64 },
    { name: "role", width: 110, hidden: steps().length > 1 },
    { name: "first_step", title: "from step", right: true, width: 88, show: count, hidden: steps().length > 2 },
    { name: "last_step", title: "to step", right: true, width: 80, show: count, hidden: steps().length > 2 },
    { name: "bytes", title: "in all", right: true, width: 92, show: size, hidden: true },
    { name: "file", title: "line", width: 190, hidden: steps().length > 1, show: (v, row) => (v ? `${v}:${row.line}` : "") },
  ];
  return {
    element,
    update() {
      const now = JSON.stringify([steps(), params(), context.state.get("unit")]);
      if (now !== of) {
        const filter = table?.filter ?? "";
        table?.destroy();
        table = new DataTable({
          label: "variables that live at the step", sort: "-live0", filter, placeholder: "filter: words, live0>1000",
          columns: columns(), page: askedRows(context, "liveness.at", () => ({ ...params(), steps: steps().join(",") }), { sort: "-live0", count: 2000 }),
          pick: (row) => context.state.set({ variable: row.row }),
        });
        fill(element, table.element);
      }
      of = now;
      table.select(context.state.number("variable"));
    },
    destroy: () => table?.destroy(),
  };
}

function change(value, size) {
  if (!value) return h("span.dim", {}, "·");
  return h(`span.${value > 0 ? "bad" : "good"}`, {}, signed(value, size));
}

/** Variables that always live, on the tiles of the curve. */
export function alwaysLive(context, { params }) {
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  const table = new DataTable({
    label: "variables that always live", sort: "-here", placeholder: "filter: words, here>1000",
    columns: [
      { name: "name", title: "variable" },
      { name: "here", title: "here", right: true, width: 100, show: size, doc: "bytes on the tiles that the curve is of" },
      { name: "bytes", title: "in all", right: true, width: 100, show: size },
      { name: "tiles", title: "on tiles", right: true, width: 84, show: count },
      { name: "type", width: 64 },
      { name: "role", title: "why", width: 150 },
      { name: "shape", width: 120 },
      { name: "handle", width: 120, hidden: true },
      { name: "file", title: "line", width: 190, show: (v, row) => (v ? `${v}:${row.line}` : "") },
    ],
    page: askedRows(context, "liveness.at", () => ({ ...params(), always: 1 }), { sort: "-here", count: 2000 }),
    pick: (row) => context.state.set({ variable: row.row }),
  });
  let of = JSON.stringify(params());
  return {
    element: h("div.filled", {}, table.element),
    update() {
      const now = JSON.stringify([params(), context.state.get("unit")]);
      if (now !== of) table.refresh();
      of = now;
      table.select(context.state.number("variable"));
    },
    destroy: () => table.destroy(),
  };
}

/** Variables that the first of the selected steps reads and writes. */
export function touched(context, { steps }) {
  const size = (value) => (value ? bytes(value, context.state.get("unit", "auto")) : h("span.dim", {}, "·"));
  const params = () => ({ step: steps()[0] });
  const table = new DataTable({
    label: "variables that the step touches", sort: "-written", placeholder: "filter: words, read>0",
    columns: [
      { name: "name", title: "variable" },
      { name: "read", title: "reads", right: true, width: 100, show: size, doc: "distinct bytes of it that the step may read" },
      { name: "written", title: "writes", right: true, width: 100, show: size, doc: "distinct bytes of it that the step writes" },
      { name: "bytes", title: "in all", right: true, width: 100, show: size },
      { name: "type", width: 64 },
      { name: "shape", width: 120 },
      { name: "always_live", title: "lives", width: 110, show: (v, row) => (v ? "always" : `${count(row.first_step)} – ${count(row.last_step)}`) },
      { name: "file", title: "line", width: 190, show: (v, row) => (v ? `${v}:${row.line}` : "") },
    ],
    page: askedRows(context, "liveness.touched", params, { sort: "-written", count: 2000 }),
    pick: (row) => context.state.set({ variable: row.row }),
  });
  let of = JSON.stringify([params(), context.state.get("unit")]);
  const note = context.facts.rows.superstep_variables ? null : h("p.dim", {}, "This report does not say which variables its steps read and write.");
  return {
    element: h("div.filled", {}, note, table.element),
    update() {
      const now = JSON.stringify([params(), context.state.get("unit")]);
      if (now !== of) table.refresh();
      of = now;
      table.select(context.state.number("variable"));
    },
    destroy: () => table.destroy(),
  };
}

const GROUPS = [["line", "source line"], ["op", "operation"], ["scope", "scope"], ["role", "role"], ["type", "data type"]];

/** What lives at the steps by source line, operation, … */
export function groupsNow(context, { steps, params }) {
  const body = h("div.scrolls");
  const by = () => context.state.get("liveness.group", "line");
  const pick = choice("Group by", GROUPS, by(), (name) => context.state.set({ "liveness.group": name === "line" ? null : name }));
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  const draw = ({ head, arrays }) => {
    const chosen = head.steps;
    const number = head.name.length;
    const totals = chosen.map((_, i) => arrays.bytes.subarray(i * number, (i + 1) * number).reduce((a, b) => a + b, 0) + arrays.moving[i]);
    const row = (name, value, many, kind = "") => h(`tr${kind}`, {}, h("th", { scope: "row" }, name), chosen.flatMap((_, i) => [
      h("td.right", {}, value(i) ? size(value(i)) : h("span.dim", {}, "·")),
      i ? h("td.right", {}, change(value(i) - value(0), size)) : h("td.right.dim", {}, totals[0] ? percent(value(0) / totals[0]) : ""),
    ]), h("td.right.dim", {}, many));
    fill(body, h("table.tree", {},
      h("thead", {}, h("tr", {}, h("th", {}, GROUPS.find(([n]) => n === by())?.[1] ?? ""), chosen.flatMap((step, i) => [h("th.right", {}, `step ${count(step)}`), h("th.right", {}, i ? `− ${count(chosen[0])}` : "")]), h("th.right", {}, "variables"))),
      h("tbody", {}, row("together", (i) => totals[i], "", ".depth-0"), row("data in motion", (i) => arrays.moving[i], ""),
        head.name.map((name, at) => row(name, (i) => arrays.bytes[i * number + at], count(arrays.variables[at]))))));
  };
  return {
    element: h("div.filled", {}, h("div.bar", {}, pick, h("span.dim", {}, "what lives at the selected steps and not always")), body),
    async update() {
      pick.show(by());
      try {
        draw(await context.ask("liveness.groups", { ...params(), steps: steps().join(","), by: by() }));
      } catch (error) {
        fill(body, failure(error));
      }
    },
    destroy() {},
  };
}
