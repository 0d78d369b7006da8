// The selected steps in figures: what they are, their cycles, and where they come from.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, percent, seconds } from "abele/core/format.js";
import { failure, shares } from "abele/core/parts.js";
import { theme } from "abele/core/theme.js";

const PARTS = ["compute", "exchange", "sync", "host"];

/** The page of rows that a step is asked for with: neighbours are here already then; a static page has the first ones. */
function pageOf(context, step) {
  const first = Math.floor(step / 200) * 200;
  return context.source.isFrozen ? [{ of: "steps", count: 2000 }, step] : [{ of: "steps", first, count: 200 }, step - first];
}

/** The row of a step: names and numbers; null where it is not to be had. */
export async function stepRow(context, step) {
  const [page, at] = pageOf(context, step);
  return rowIn(await context.ask("table", page), at);
}

/** The row of a step where it is here already, else null. */
export function knownStep(context, step) {
  const [page, at] = pageOf(context, step);
  const answer = context.known("table", page);
  if (!answer) stepRow(context, step).catch(() => {});
  return answer ? rowIn(answer, at) : null;
}

function rowIn({ head, arrays }, at) {
  if (!(at < arrays.row.length)) return null;
  return Object.fromEntries(head.columns.map(({ name, text }) => [name, text ? head.text[name][at] : arrays[name][at]]));
}

export function stepTab(context, { steps }) {
  const element = h("div.scrolls");
  const line = (name, value) => h("tr", {}, h("th", { scope: "row" }, name), value);
  return {
    element,
    async update() {
      try {
        const chosen = steps();
        const rows = await Promise.all(chosen.map((step) => stepRow(context, step)));
        const stacks = await Promise.all(chosen.map((step) => context.ask("liveness.stack", { step }).then(({ head }) => head.nodes, () => [])));
        if (chosen.join() !== steps().join()) return;
        const cells = (show) => rows.map((row) => h("td.right", {}, row ? show(row) : "–"));
        const unit = context.state.get("unit", "auto");
        const colours = theme().parts;
        fill(element, h("table.tree", {},
          h("thead", {}, h("tr", {}, h("th", {}, "step"), chosen.map((step) => h("th.right", {}, count(step))))),
          h("tbody", {},
            line("name", cells((row) => h("span.step-name", { title: row.name }, row.name || "(no name)"))),
            line("kind", cells((row) => row.kind)),
            line("cycles of one execution", cells((row) => `${count(row.cycles)} = ${seconds(context.seconds(row.cycles))}`)),
            line("", rows.map((row) => h("td.right", {}, row && row.cycles ? shares(PARTS.map((part) => [colours[part], part, row[`${part}_cycles`]]), row.cycles) : ""))),
            PARTS.map((part) => line(part, cells((row) => count(row[`${part}_cycles`])))),
            line("times per run", cells((row) => count(row.executions))),
            line("cycles per run", cells((row) => `${count(row.cycles * row.executions)} (${percent((row.cycles * row.executions) / Math.max(1, context.facts.cycles))})`)),
            line("vertices", cells((row) => count(row.num_vertices))),
            line("tiles that compute", cells((row) => count(row.active_tiles))),
            line("tile balance", cells((row) => percent(row.tile_balance))),
            line("bytes exchanged", cells((row) => bytes(row.exchanged_bytes, unit))),
            line("most that a tile receives", cells((row) => bytes(row.max_receive_bytes, unit))),
            line("begins at cycle", cells((row) => (row.start_cycle < 0 ? "does not run" : count(row.start_cycle)))),
            stacks.some((nodes) => nodes.length) ? line("in the program", stacks.map((nodes) => h("td.right.stack", {}, nodes.map((node, i) => h("div", { title: node.place }, `${i ? "in " : ""}${node.text}`))))) : null)));
      } catch (error) {
        fill(element, failure(error));
      }
    },
    destroy() {},
  };
}
