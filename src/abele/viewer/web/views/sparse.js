// Sparse operands: what each tile has of one, against the mean and the room of a bucket, and what patterns cost against the worst.

import { Chart } from "abele/core/chart.js";
import { facts, lastScopes, listing, part } from "abele/core/detail.js";
import { fill, h } from "abele/core/dom.js";
import { count, marks, percent, ranges, short } from "abele/core/format.js";
import { empty, failure, figure, panel, split } from "abele/core/parts.js";
import { renewed } from "abele/core/renewed.js";
import { arrayRows, DataTable } from "abele/core/table.js";
import { hideTip, tips } from "abele/core/tip.js";

const EDGE = { left: 76, right: 70, top: 12, bottom: 20 };

export const mount = (context, place) => renewed(context, place, ofReport);

async function ofReport(context, place) {
  const view = new SparseView(context, (await context.ask("sparse")).head);
  fill(place, view.element);
  return {
    update: (changed) => view.update(changed),
    destroy: () => view.destroy(),
    charts: [view.chart],
    commands: [],
  };
}

class SparseView {
  constructor(context, told) {
    Object.assign(this, { context, told, asked: 0, answer: null });
    const { state } = context;
    this.rows = told.operands.map((operand, row) => ({ ...operand, row, shape: `${operand.groups > 1 ? `${operand.groups} × ` : ""}${operand.rows} × ${operand.columns}`, block: `${operand.block_rows} × ${operand.block_columns}` }));
    this.table = new DataTable({
      label: "sparse operands",
      sort: "-imbalance", placeholder: "filter: words, or imbalance>2",
      columns: [
        { name: "name", title: "operand", show: (v) => h("span", { title: v }, lastScopes(v)) },
        { name: "library", width: 92 },
        { name: "basis", width: 78 },
        { name: "shape", width: 112 },
        { name: "block", width: 66 },
        { name: "density", right: true, width: 78, show: percent },
        { name: "blocks", right: true, width: 74, show: count },
        { name: "tiles", right: true, width: 64, show: count },
        { name: "mean_values", title: "mean", right: true, width: 66, show: short },
        { name: "most_values", title: "fullest", right: true, width: 74, show: count },
        { name: "capacity", title: "room", right: true, width: 64, show: (v) => (v ? count(v) : "") },
        { name: "imbalance", right: true, width: 102, show: (v) => v.toFixed(2) },
        { name: "passes", right: true, width: 92, show: (v, row) => (row.worst_passes ? `${count(v)} of ${count(row.worst_passes)}` : "") },
      ].map((column) => ({ ...column, doc: told.docs.sparse_operands[column.name] })),
      page: arrayRows(() => this.rows),
      pick: (row) => state.set({ "sparse.operand": row.row }),
    });
    this.chart = new Chart({ label: "Values by tile", name: "sparse", draw: (c, p) => this.#draw(c, p) });
    this.chart.element.classList.add("fill");
    tips(this.chart.canvas, (event) => this.#hover(event));
    this.chart.canvas.addEventListener("click", (event) => {
      const at = this.#under(event);
      if (at >= 0) state.set({ tiles: String(this.answer.arrays.at[at]) });
    });
    this.details = h("div.told", { "aria-live": "polite" });
    const lower = h("div.sparse-lower", {}, panel("Values by tile", this.chart.element), panel("Operand", this.details));
    this.element = told.num_operands
      ? split(panel("Sparse operands", this.table.element, this.#totals()), lower, state.number("sparse.split", 0.4), (v) => state.set({ "sparse.split": v.toFixed(2) }))
      : panel("Sparse operands", empty("The program has no sparse operand.", "Products of popsparse have some; reports of format 12 tell of them."));
    if (told.num_operands) this.#show();
  }

  destroy() {
    this.asked += 1;
    hideTip();
    this.table.destroy();
    this.chart.destroy();
  }

  update(changed) {
    if (!this.told.num_operands) return;
    if (changed.has("sparse.operand")) this.#show();
    if (changed.has("theme") || changed.has("tiles")) this.chart.redraw();
  }

  get operand() {
    const chosen = this.context.state.number("sparse.operand");
    const least = this.rows.reduce((best, row) => (row.imbalance > best.imbalance ? row : best), this.rows[0]);
    return this.rows[chosen] ?? least;
  }

  #totals() {
    const { cycles, worst_cycles: worst, passes } = this.told;
    const first = passes.filter((p) => p.program === 0);
    const sum = (name) => first.reduce((total, p) => total + p[name], 0);
    return h("div.figures.totals", {},
      figure(count(this.told.num_operands), "operands"),
      figure(`× ${Math.max(...this.rows.map((r) => r.imbalance)).toFixed(2)}`, "fullest tile over the mean, at most"),
      first.length ? figure(`${count(sum("passes"))} of ${count(sum("worst_passes"))}`, "passes of buckets, at worst") : null,
      first.length ? figure(`${short(cycles)} of ${short(worst)}`, `cycles of a run, with the worst patterns: ${percent(cycles / Math.max(worst, 1))}`) : null);
  }

  async #show() {
    const { operand } = this;
    this.table.select(operand.row);
    this.asked += 1;
    const mine = this.asked;
    this.#tell(operand);
    try {
      const answer = await this.context.ask("sparse.tiles", { operand: operand.row });
      if (mine !== this.asked) return;
      this.answer = answer;
      this.chart.describe(`Values of ${operand.name} on ${count(answer.head.tiles)} tiles: ${short(operand.mean_values)} on the mean tile, ${count(answer.head.values)} on tile ${count(answer.head.fullest)}`);
      this.#tell(operand);
      this.chart.redraw();
    } catch (error) {
      if (mine === this.asked) fill(this.details, failure(error));
    }
  }

  #tell(operand) {
    const head = this.answer?.head;
    const { state } = this.context;
    const said = { static: "known when the program was built", counted: "counted in the buckets", assumed: "assumed: an even deal of what was declared" };
    fill(this.details,
      part(operand.name, facts([
        ["library", `popsparse, ${operand.library}`],
        ["pattern", said[operand.basis] ?? operand.basis],
        ["shape", `${operand.shape} of ${operand.type}`],
        ["blocks", `${count(operand.blocks)} of ${operand.block}, density ${percent(operand.density)}`],
        ["mean tile", `${short(operand.mean_values)} values on ${count(operand.tiles)} tiles`],
        ["fullest tile", head ? h("button.link", { onclick: () => state.set({ tiles: String(head.fullest) }) }, `tile ${count(head.fullest)}, ${count(operand.most_values)} values`) : count(operand.most_values)],
        ["imbalance", `${operand.imbalance.toFixed(2)} times the mean`],
        ["room of a bucket", operand.capacity ? `${count(operand.capacity)} values, ${percent(operand.most_values / operand.capacity)} used on the fullest` : ""],
        ["passes", operand.worst_passes ? `${count(operand.passes)} beyond the first, ${count(operand.worst_passes)} at worst` : ""],
      ])),
      this.told.passes.length ? part("Products with passes", listing("Passes of products in the last run", [
        ["product", (p) => h("span", { title: p.name }, lastScopes(p.name))], ["passes", (p) => p.passes, true], ["worst", (p) => p.worst_passes, true],
        ["cycles", (p) => p.cycles, true], ["worst", (p) => p.worst_cycles, true]], this.told.passes)) : null);
  }

  #plot({ width, height }) {
    return { left: EDGE.left, top: EDGE.top, width: Math.max(1, width - EDGE.left - EDGE.right), height: Math.max(1, height - EDGE.top - EDGE.bottom) };
  }

  #under(event) {
    if (!this.answer) return -1;
    const plot = this.#plot(this.chart);
    const [x] = this.chart.at(event);
    const columns = this.answer.arrays.first.length;
    const at = Math.floor(((x - plot.left) / plot.width) * columns);
    return at >= 0 && at < columns ? at : -1;
  }

  #hover(event) {
    const at = this.#under(event);
    if (at < 0) return null;
    const { first, most, mean, at: tile } = this.answer.arrays;
    const end = first[at + 1] ?? this.answer.head.tiles;
    if (end - first[at] === 1) return [`tile ${count(first[at])}`, ["values", count(most[at])]];
    return [`tiles ${count(first[at])} to ${count(end - 1)}`, ["fullest", `tile ${count(tile[at])}`], ["its values", count(most[at])], ["mean", short(mean[at])]];
  }

  #draw(pen, place) {
    if (!this.answer) return;
    const { theme } = place;
    const plot = this.#plot(place);
    const { operand } = this;
    const { first, most, mean } = this.answer.arrays;
    const { tiles, fullest } = this.answer.head;
    const top = Math.max(1, operand.most_values, operand.capacity) * 1.05;
    const y = (value) => plot.top + plot.height * (1 - value / top);
    const x = (tile) => plot.left + (tile / tiles) * plot.width;
    pen.font = theme.font;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const value of marks(0, top, Math.max(2, plot.height / 40)).marks) {
      pen.fillStyle = theme.rule;
      pen.fillRect(plot.left, y(value), plot.width, 1);
      pen.fillStyle = theme.dim;
      pen.fillText(short(value), plot.left - 6, y(value));
    }
    const chosen = ranges(this.context.state.get("tiles")) ?? [];
    const column = (i, values, colour) => {
      const [from, to] = [x(first[i]), x(first[i + 1] ?? tiles)];
      pen.fillStyle = colour;
      pen.fillRect(from, y(values[i]), Math.max(0.5, to - from - (to - from > 4 ? 1 : 0)), plot.top + plot.height - y(values[i]));
    };
    for (let i = 0; i < first.length; i += 1) {
      const end = first[i + 1] ?? tiles;
      const isChosen = chosen.some(([low, high]) => low < end && high >= first[i]);
      const isFullest = fullest >= first[i] && fullest < end;
      column(i, most, isFullest ? theme.warn : isChosen ? theme.accent : theme.series[0]);
      if (end - first[i] > 1) {
        pen.fillStyle = theme.ink;
        pen.fillRect(x(first[i]), y(mean[i]), Math.max(0.5, x(end) - x(first[i])), 1);
      }
    }
    pen.textAlign = "left";
    let above = -Infinity;
    // From the bottom up, so that a name that would lie on the one below moves above it.
    const lines = [["mean", operand.mean_values, theme.ink], ["fullest", operand.most_values, theme.warn], ["room", operand.capacity, theme.dim]].filter(([, value]) => value > 0);
    for (const [title, value, colour] of lines) {
      const level = y(value);
      pen.fillStyle = colour;
      pen.fillRect(plot.left, level, plot.width, 1);
      above = above === -Infinity ? level : Math.min(level, above - 14);
      pen.fillText(`${title} ${short(value)}`, plot.left + plot.width + 4, Math.max(above, 8));
    }
    pen.fillStyle = theme.dim;
    pen.textAlign = "center";
    for (const tile of marks(0, tiles, Math.max(2, plot.width / 90)).marks) if (tile < tiles && Number.isInteger(tile)) pen.fillText(count(Math.abs(tile)), x(tile + 0.5), plot.top + plot.height + 11);
  }
}
