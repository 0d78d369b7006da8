// Operations: a table with chosen columns.

import { fill } from "abele/core/dom.js";
import { bytes, count, percent, short } from "abele/core/format.js";
import { panel } from "abele/core/parts.js";
import { DataTable, reportRows } from "abele/core/table.js";

export function mount(context, place) {
  const table = new DataTable({
    label: "operations",
    sort: context.state.get("operations.sort", "-cycles"),
    filter: context.state.get("operations.filter"),
    columns: [
      { name: "name", title: "operation" },
      { name: "kind", width: 170 },
      { name: "cycles", right: true, width: 110, show: count },
      { name: "share", right: true, width: 70, show: percent },
      { name: "compute_cycles", title: "compute", right: true, width: 100, show: count },
      { name: "exchange_cycles", title: "exchange", right: true, width: 100, show: count },
      { name: "sync_cycles", title: "sync", right: true, width: 80, show: count },
      { name: "host_cycles", title: "host", right: true, width: 80, show: count },
      { name: "flops", right: true, width: 90, show: short },
      { name: "code_bytes", title: "code", right: true, width: 80, show: (v) => bytes(v, context.state.get("unit", "auto")) },
      { name: "file", width: 200, show: (v, row) => (v ? `${v}:${row.line}` : "") },
    ],
    page: reportRows(context, "ops"),
    pick: (row) => context.state.set({ op: row.row }),
    changed: ({ filter, sort }) => context.state.set({ "operations.filter": filter || null, "operations.sort": sort || null }),
  });
  fill(place, panel("Operations", table.element));
  place.querySelector(".panel").classList.add("fill");
  table.select(context.state.number("op"));
  return {
    update(changed) {
      if (changed.has("op")) table.select(context.state.number("op"));
      if (changed.has("reports")) table.refresh();
    },
    destroy: () => table.destroy(),
    charts: [],
    commands: [],
  };
}
