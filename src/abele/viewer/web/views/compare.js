// Runs beside each other: figures with differences, what changed first, regressions in words, tables, overlaid curves.
// The first report is what the others are compared with.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, joules, percent, seconds, short, signed } from "abele/core/format.js";
import { empty, failure, panel, tabs } from "abele/core/parts.js";
import { arrayRows, DataTable } from "abele/core/table.js";
import { overlay } from "abele/views/compare/overlay.js";

const TABLES = [["ops", "Operations"], ["steps", "Steps"], ["variables", "Variables"], ["memory", "Memory by category"]];
const LEAST = 0.0005;

export async function mount(context, place) {
  let tables = [];
  const curves = overlay(context);
  const show = async () => {
    const keys = context.reports;
    for (const table of tables) table.destroy();
    tables = [];
    if (keys.length < 2) {
      fill(place, empty("One report is open: there is nothing to compare it with.", "abele view FIRST SECOND … shows two to eight beside each other"));
      return;
    }
    try {
      const { head } = await context.ask("compare", { program: context.program, with: keys.slice(1).join(",") });
      await curves.show(keys);
      fill(place,
        head.notes.length ? panel("Before comparing", head.notes.map((note) => h("p.warn", {}, note))) : null,
        h("div.compare-rows", {},
          panel("Figures", figures(context, head)),
          h("div.compare-words", {},
            panel("What changed first", first(context, head)),
            panel("What got worse and better", changes(context, head)))),
        panel("Overlaid", curves.element),
        h("section.panel.compare-tables", { "aria-label": "Tables" }, tabs("Tables", TABLES.filter(([name]) => head.tables[name]).map(([name, title]) => [name, `${title} (${count(head.tables[name].rows.length + head.tables[name].more)})`, () => {
          const table = compared(context, head, name);
          tables.push(table);
          return table.element;
        }]), context.state.get("compare.tab", "ops"), (tab) => context.state.set({ "compare.tab": tab }))));
    } catch (error) {
      fill(place, failure(error));
    }
  };
  await show();
  return {
    update(changed) {
      if (["reports", "unit", "theme"].some((n) => changed.has(n))) show();
    },
    destroy() {
      for (const table of tables) table.destroy();
      curves.destroy();
    },
    charts: curves.charts,
    commands: [],
  };
}

/** A value in its unit. */
export function inUnit(value, unit, of = "auto") {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes" || unit === "B") return bytes(value, of);
  if (unit === "seconds" || unit === "s") return seconds(value);
  if (unit === "joules") return joules(value);
  if (unit === "proportion" || unit === "share") return percent(value);
  if (unit === "cycles") return Math.abs(value) < 1e6 ? count(value) : short(value);
  return Number.isInteger(value) ? count(value) : short(value);
}

/** Whether a difference is good, bad or neither. */
export function verdict(difference, better) {
  if (!difference || !better) return "";
  return (difference < 0) === (better === "less") ? "good" : "bad";
}

function figures(context, head) {
  const unit = context.state.get("unit", "auto");
  const labels = head.reports.map((r) => r.label);
  return h("table.compare-figures", {},
    h("thead", {}, h("tr", {}, h("th", {}, ""), labels.flatMap((label, i) => [h("th", {}, label), i ? h("th", { colspan: 2 }, "difference") : null]))),
    h("tbody", {}, head.figures.map((row) => h("tr", {}, h("td", {}, row.title), row.values.flatMap((value, i) => {
      const cells = [h("td", {}, inUnit(value, row.unit, unit))];
      if (i) {
        const kind = verdict(row.differences[i], row.better);
        const mark = kind ? `td.${kind}` : "td";
        cells.push(h(mark, {}, row.differences[i] === null ? "–" : signed(row.differences[i], (v) => inUnit(v, row.unit, unit))),
          h(mark, {}, row.proportions[i] === null ? "" : Math.abs(row.proportions[i]) < LEAST ? "" : signed(row.proportions[i], percent)));
      }
      return cells;
    })))));
}

function changes(context, head) {
  const unit = context.state.get("unit", "auto");
  if (!head.insights.length) return h("p.dim", {}, "Nothing differs.");
  return head.insights.map((change) => h("div.change", {},
    h(`b.${change.kind === "regression" ? "bad" : "good"}`, {}, signed(change.cost.difference, (v) => inUnit(v, change.cost.unit, unit)),
      change.cost.proportion !== null && change.cost.proportion !== undefined ? h("div.dim", {}, signed(change.cost.proportion, percent)) : null),
    h("div", {}, h("div", {}, h("b", {}, change.title), head.reports.length > 2 ? h("span.dim", {}, ` in ${head.reports[change.report].label}`) : null), h("div", {}, change.reason),
      change.where ? h("span.dim", {}, `${change.where.file}:${change.where.line}`) : null)));
}

function first(context, head) {
  return head.reports.slice(1).map((report, i) => {
    const change = head.first_change[i + 1];
    return h("p", {}, h("b", {}, `${report.label}: `), change
      ? [h("button.small", { onclick: () => context.go("program", { step: change.step[0] >= 0 ? change.step[0] : null }) }, change.title), ` ${change.what}`, change.where ? h("span.dim", {}, ` ${change.where.file}:${change.where.line}`) : null]
      : "every step is the same.");
  });
}

function compared(context, head, name) {
  const held = head.tables[name];
  const unit = context.state.get("unit", "auto");
  const rows = held.rows.map((row, i) => {
    const flat = { row: i, status: row.status, of: row.rows[0], ...row.key };
    for (const column of held.columns) {
      const values = row.values[column.name];
      values.forEach((value, k) => {
        flat[`${column.name} ${k}`] = value ?? 0;
        if (k) flat[`${column.name} change ${k}`] = (value ?? 0) - (values[0] ?? 0);
      });
    }
    return flat;
  });
  const labels = head.reports.map((r) => r.label);
  const columns = [...held.keys.map((key) => ({ name: key, width: key === "name" ? undefined : 150 })), { name: "status", width: 80 }];
  held.columns.forEach((column, c) => labels.forEach((label, k) => {
    columns.push({ name: `${column.name} ${k}`, title: `${column.name.replaceAll("_", " ")} ${label}`, right: true, width: 130, hidden: c > 0, show: (v) => inUnit(v, column.unit, unit) });
    if (k) {
      columns.push({ name: `${column.name} change ${k}`, title: `change ${label}`, right: true, width: 130, hidden: c > 0, show: (v) => h(`span.${verdict(v, column.better) || "dim"}`, {}, signed(v, (x) => inUnit(x, column.unit, unit))) });
    }
  }));
  const selects = { ops: ["operations", "op"], steps: ["program", "step"], variables: ["memory", "variable"] }[name];
  const table = new DataTable({
    label: `compared ${name}`, columns, page: arrayRows(() => rows), placeholder: "filter: words, or status=changed",
    pick: (row) => selects && row.of >= 0 && context.state.set({ [selects[1]]: row.of }),
  });
  return table;
}
