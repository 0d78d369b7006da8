// Vertices and their codelets: of steps in which the selected tiles compute, or of one step.

import { h } from "abele/core/dom.js";
import { bytes, count, short } from "abele/core/format.js";
import { empty } from "abele/core/parts.js";
import { DataTable } from "abele/core/table.js";
import { askedRows } from "abele/views/memory/rows.js";

/**
 * @param {any} context
 * @param {() => Object<string, any>} params  of the question: tiles, or a step
 * @param {string} words  what the rows are of
 */
export function verticesTab(context, params, words) {
  if (!context.facts.rows.codelets) {
    return {
      element: empty("This report does not say which codelets its vertices are of.", "Code and state of vertices are in the tree of categories; the tab of compute sets has the vertices of each step."),
      update() {}, destroy() {},
    };
  }
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  const table = new DataTable({
    label: "codelets", sort: "-code_bytes", placeholder: "filter: words, vertices>100",
    columns: [
      { name: "name", title: "codelet" },
      { name: "kind", width: 90 },
      { name: "code_bytes", title: "code per tile", right: true, width: 100, show: size, doc: "bytes of its instructions on a tile" },
      { name: "tiles", title: "on tiles", right: true, width: 84, show: count, doc: "tiles that have its code, of all" },
      { name: "vertices", title: "vertices", right: true, width: 92, show: count, doc: "its vertices in these steps, on all tiles" },
      { name: "state_bytes", title: "state", right: true, width: 92, show: size, doc: "bytes of the records of these vertices, on all tiles" },
      { name: "supersteps", title: "compute sets", right: true, width: 110, show: count, doc: "in how many of these compute sets it runs" },
      { name: "cycles", title: "cycles", right: true, width: 92, show: short, doc: "cycles of these vertices, each on its worker" },
      { name: "stack_bytes", title: "stack", right: true, width: 80, show: size, hidden: true },
      { name: "file", width: 190, show: (v, row) => (v ? `${v}:${row.line}` : "") },
    ],
    page: askedRows(context, "memory.codelets", params, { sort: "-code_bytes", count: 2000 }),
  });
  let of = JSON.stringify(params());
  return {
    element: h("div.filled", {}, h("p.dim", {}, words), table.element),
    update() {
      const now = `${JSON.stringify(params())}${context.state.get("unit")}`;
      if (now !== of) table.refresh();
      of = now;
    },
    destroy: () => table.destroy(),
  };
}
