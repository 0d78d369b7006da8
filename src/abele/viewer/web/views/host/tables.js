// Tables of what was measured on the host. `made` makes a table that goes away with the view.

import { h } from "abele/core/dom.js";
import { bytes, count, percent, seconds, short } from "abele/core/format.js";
import { legend, shares } from "abele/core/parts.js";
import { reportRows } from "abele/core/table.js";
import { theme } from "abele/core/theme.js";

/** Runs that the report holds, and what the host did in them. */
export function runsTable(context, outline, made, pick) {
  const table = made({
    label: "runs", columns: [
      { name: "name", title: "run" }, { name: "program", right: true, width: 80, hidden: true }, { name: "mode", width: 80 }, { name: "threads", right: true, width: 70 },
      { name: "wall_seconds", title: "running", right: true, width: 100, show: seconds }, { name: "waiting_seconds", title: "waiting", right: true, width: 100, show: seconds },
      { name: "sending_seconds", title: "sending", right: true, width: 100, show: seconds }, { name: "reading_seconds", title: "reading", right: true, width: 100, show: seconds },
      { name: "samples", right: true, width: 90, show: count }, { name: "cycles", title: "modelled cycles", right: true, width: 130, show: count },
      { name: "factor", title: "host / machine", right: true, width: 120, show: (_, run) => (run.cycles ? `${short(run.wall_seconds / context.seconds(run.cycles))}×` : "–") },
    ],
    page: reportRows(context, "runs"),
    pick: (run) => {
      const source = outline.sources.findIndex((each) => each.kind === "runs");
      const place = source < 0 ? null : context.ask("host.find", { text: `run ${run.row + 1}` });
      place?.then(({ arrays }) => {
        const i = arrays.source.indexOf(source);
        if (i >= 0) pick(source, arrays.row[i]);
      }, () => {});
    },
  });
  const { seconds: told } = outline;
  const colours = theme().parts;
  const parts = [[colours.idle, "waiting for data", told.waiting], [colours.host, "sending", told.sending], [colours.compute, "running", told.running], [colours.exchange, "reading", told.reading]];
  return h("div.table", {}, shares(parts, Object.values(told).reduce((a, b) => a + b, 0) || 1), legend(parts.filter(([, , v]) => v > 0).map(([c, t, v]) => [c, `${t} ${seconds(v)}`])), table.element);
}

/** The profile of the host: leaves, and the functions of one. */
export function profileTables(context, outline, made) {
  const rate = (amount, took, unit) => (amount && took ? `${short(amount / took)}${unit}` : "");
  const table = made({
    label: "host leaves", sort: "-seconds", columns: [
      { name: "name", title: "what it carries out" }, { name: "kind", width: 80 }, { name: "network_op", title: "network", width: 140 }, { name: "seconds", right: true, width: 90, show: seconds },
      { name: "executions", title: "times", right: true, width: 80, show: count }, { name: "best_seconds", title: "best", right: true, width: 90, show: seconds }, { name: "balance", right: true, width: 80, show: percent },
      { name: "flops", title: "FLOP/s", right: true, width: 90, show: (v, leaf) => rate(v * leaf.executions, leaf.seconds, "FLOP/s") },
      { name: "read_bytes", title: "bytes/s", right: true, width: 90, show: (v, leaf) => (leaf.seconds ? `${bytes(((v + leaf.written_bytes) * leaf.executions) / leaf.seconds)}/s` : "") },
      { name: "file", title: "source", width: 170, show: (v, leaf) => (v ? `${v}:${leaf.line}` : "") }, { name: "calls", width: 160, hidden: true }, { name: "lanes", right: true, width: 60, hidden: true }],
    page: reportRows(context, "host_leaves"),
    pick: (leaf) => {
      inner.setFilter(`leaf=${leaf.row}`);
      box.hidden = false;
    },
  });
  const inner = made({
    label: "functions of a leaf", sort: "-seconds", placeholder: "functions of the leaf",
    columns: [{ name: "name", title: "function" }, { name: "leaf", right: true, width: 60 }, { name: "seconds", right: true, width: 90, show: seconds }, { name: "calls", right: true, width: 90, show: count }, { name: "file", title: "source", width: 170, show: (v, f) => (v ? `${v}:${f.line}` : "") }],
    page: reportRows(context, "host_functions"),
  });
  const box = h("div.tcolumn", {}, inner.element);
  box.hidden = true;
  return h("div.table", {}, h("div.dim", {}, outline.profile.join("; ")), h("div.tpair", {}, table.element, box));
}

/** What is told with an event, as names and values where it is JSON. */
export function detailTable(text) {
  try {
    const told = JSON.parse(text);
    return h("table.tfigures", {}, Object.entries(told).slice(0, 60).map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", {}, typeof value === "object" ? JSON.stringify(value) : String(value)))));
  } catch {
    return h("div", {}, text);
  }
}
