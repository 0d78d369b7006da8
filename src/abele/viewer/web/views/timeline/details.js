// Below the lanes: figures of the run, of a selected window, and of a step, with ways to the other views.

import { Chart } from "abele/core/chart.js";
import { fill, h } from "abele/core/dom.js";
import { bytes, count, cycles, percent, seconds, short } from "abele/core/format.js";
import { partTitle } from "abele/core/part_titles.js";
import { empty, failure, figure, legend, shares } from "abele/core/parts.js";
import { DataTable, arrayRows } from "abele/core/table.js";
import { theme } from "abele/core/theme.js";

const unitOf = (context) => context.state.get("unit", "auto");

/** Parts with something in them, as entries of a bar of shares. */
export function entries(parts) {
  const { parts: colours } = theme();
  return Object.entries(parts).filter(([, value]) => value > 0).map(([part, value]) => [colours[part], partTitle(part), value]);
}

function row(...cells) {
  return h("tr", {}, cells.map((cell, i) => h(i ? "td.right" : "td", {}, cell)));
}

/** Figures of the whole run. */
export class RunDetails {
  constructor(context, fly) {
    Object.assign(this, { context, fly });
    this.element = h("div.tdetails");
    this.table = null;
    this.asked = 0;
    this.show();
  }

  async show() {
    const { context } = this;
    this.asked += 1;
    const mine = this.asked;
    let told;
    try {
      told = (await context.ask("timeline.summary", { program: context.program })).head;
    } catch (error) {
      if (mine === this.asked) fill(this.element, failure(error));
      return;
    }
    if (mine !== this.asked) return;
    const unit = unitOf(context);
    const basis = Object.entries(told.basis).filter(([word]) => word !== "static").map(([word, n]) => `${count(n)} ${word}`).join(", ");
    const single = told.lanes.length <= 1;
    const busy = Object.values(told.cycles).reduce((a, b) => a + b, 0);
    const moved = [["exchange", "between tiles"], ["host", "with the host"], ["memory", "with streaming memory"], ["replicas", "between replicas"]].filter(([name]) => told.bytes[name]);
    const lines = h("div.tcolumn", {},
      h("div.figures", {},
        figure(cycles(told.total), seconds(context.seconds(told.total)), `${count(told.total)} cycles`),
        figure(percent(told.tile_balance), "tile balance", "mean tile / slowest tile while computing"),
        figure(percent(told.efficiency), "tiles compute", "mean part of the run in which a tile computes"),
        single ? null : figure(told.at_once.toFixed(1), "groups at once", `of ${told.lanes.length} sync groups`),
        single ? null : figure(percent(told.bubble_share), "bubbles", "part of the run in which groups wait, their mean"),
        ...moved.map(([name, title]) => figure(bytes(told.bytes[name], unit), title)),
        figure(count(told.executions), "executions", `of ${count(told.steps)} steps`)),
      h("h3", {}, "What the cycles go to"),
      shares(entries(told.cycles), busy),
      legend(entries(told.cycles).map(([colour, title, value]) => [colour, `${title} ${count(value)} (${percent(value / (busy || 1))})`])),
      h("p.dim", {}, [told.figures_of && `Figures of ${told.figures_of}.`, told.hidden > 0 && `${cycles(told.hidden)} of these happen while another sync group works.`,
        basis && `Steps whose figures data decides: ${basis}.`, told.replicas > 1 && `Each of ${told.replicas} replicas does the same.`].filter(Boolean).join(" ")),
      single ? null : [h("h3", {}, "Sync groups"), h("table.tfigures", {},
        h("tr", {}, ["group", "bubble", "balance", "", "stages"].map((t) => h("th", {}, t))),
        told.lanes.slice(0, 128).map((lane) => h("tr", {}, h("td", {}, lane.name), h("td.right", {}, percent(lane.bubble / told.total)), h("td.right", {}, percent(lane.tile_balance)),
          h("td.tbar", {}, shares(entries(lane.cycles), told.total)), h("td.dim", {}, lane.stages.join(", ")))))]);
    this.table?.destroy();
    this.table = new DataTable({
      label: "critical path", placeholder: "filter the critical path", sort: "-cycles",
      columns: [
        { name: "name", title: "on the critical path" },
        { name: "where", width: 84 },
        { name: "share", right: true, width: 60, show: percent },
        { name: "cycles", right: true, width: 96, show: count },
        { name: "bar", title: "made of", width: 110, show: (_, link) => shares(entries(link.parts), link.cycles) },
      ],
      page: arrayRows(() => told.critical.map((link, i) => ({ ...link, row: i, where: whereText(link.where), share: link.cycles / told.total, bar: 0 }))),
      pick: (link) => this.fly(told.critical[link.row].step, told.critical[link.row].start),
    });
    fill(this.element, lines, told.critical.length ? h("div.tcolumn.grow", {}, this.table.element)
      : h("div.tcolumn", {}, empty("The report does not hold the critical path.", "Compile again: files of format version 5 and earlier have none.")));
  }

  destroy() {
    this.asked += 1;
    this.table?.destroy();
  }
}

/** Sync groups in a few words. */
export function whereText(names) {
  if (names.length <= 2) return names.join(" and ");
  return `${names[0]} and ${names.length - 1} others`;
}

/** Figures of a selected window. */
export class WindowDetails {
  constructor(context) {
    this.context = context;
    this.element = h("div.tdetails");
    this.asked = 0;
    this.table = null;
  }

  /** @param {[number, number]|null} window @param {() => void} zoom */
  async show(window, zoom, clear) {
    this.asked += 1;
    const mine = this.asked;
    this.table?.destroy();
    this.table = null;
    if (!window) {
      fill(this.element, empty("No window is selected.", "Shift and drag over the lanes: what happens in that time stands here."));
      return;
    }
    const { context } = this;
    const [low, high] = window;
    let told;
    try {
      told = (await context.ask("timeline.window", { program: context.program, from: low, to: high })).head;
    } catch (error) {
      if (mine === this.asked) fill(this.element, failure(error));
      return;
    }
    if (mine !== this.asked) return;
    const span = high - low;
    const groups = told.lanes.filter((lane) => lane.group >= 0);
    const own = groups.length ? groups : told.lanes;
    const sums = Object.fromEntries(Object.keys(own[0].cycles).map((part) => [part, own.reduce((sum, lane) => sum + lane.cycles[part], 0)]));
    const busy = Object.values(sums).reduce((a, b) => a + b, 0);
    const unknown = own.reduce((sum, lane) => sum + lane.unknown, 0);
    this.table = new DataTable({
      label: "operations of the window", placeholder: "filter operations", sort: "-cycles",
      columns: [
        { name: "name", title: "operation" }, { name: "path", width: 140 }, { name: "kind", width: 150, hidden: true },
        { name: "cycles", right: true, width: 84, show: count }, { name: "share", right: true, width: 60, show: percent },
        { name: "executions", title: "steps", right: true, width: 66, show: count },
      ],
      page: arrayRows(() => told.ops.map((op) => ({ ...op, share: op.cycles / span }))),
      pick: (op) => op.row >= 0 && context.state.set({ op: op.row }),
    });
    fill(this.element, h("div.tcolumn", {},
      h("div.bar", {}, h("b", {}, `${count(low)} to ${count(high)}`), h("span.grow"), h("button.small", { onclick: zoom }, "zoom to it"), h("button.small", { onclick: clear }, "clear")),
      h("div.figures", {},
        figure(cycles(span), seconds(context.seconds(span))),
        figure(percent(busy / (span * own.length || 1)), "groups work", "mean part of the window in which a sync group does not wait"),
        figure(percent(told.utilisation), "tiles compute", "mean part of the window in which a tile computes"),
        figure(percent(own.reduce((s, lane) => s + lane.critical, 0) / (span * own.length || 1)), "on the critical path"),
        figure(count(told.executions), "executions", "that lie at least partly in it")),
      h("div.tbars", {}, told.lanes.slice(0, 128).map((lane) => h("div.tlane", {}, h("span.tname", { title: lane.name }, lane.name), shares(entries(lane.cycles), span)))),
      legend([...entries(sums).map(([colour, title, value]) => [colour, `${title} ${short(value)} (${percent(value / (span * own.length))})`]),
        [theme().parts.idle, `waiting ${percent(Math.max(0, 1 - (busy + unknown) / (span * own.length || 1)))}`]]),
      unknown > 0 ? h("p.warn", {}, `Of ${percent(unknown / (span * own.length))} of it the report does not say what happens.`) : null),
    h("div.tcolumn.grow", {}, this.table.element));
  }

  destroy() {
    this.table?.destroy();
  }
}

const most = (values) => values.reduce((a, b) => Math.max(a, b), 0);

function byTile({ compute, exchange }) {
  const parts = [most(compute) ? `cycles that a tile computes, at most ${count(most(compute))}` : "", most(exchange) ? `bytes that it moves, at most ${count(most(exchange))}` : ""].filter(Boolean);
  return parts.length ? `By tile: ${parts.join("; ")}` : "Tiles neither compute nor exchange in it.";
}

/** All that is known of a step. */
export class StepDetails {
  constructor(context) {
    this.context = context;
    this.element = h("div.tdetails");
    this.asked = 0;
    this.told = null;
    this.chart = new Chart({ label: "The step by tile", height: 92, name: "step-by-tile", draw: (pen, place) => this.#draw(pen, place) });
  }

  /** @param {number} step @param {{start: number, cycles: number, lane: string, number?: number, of?: number}|null} selected */
  async show(step, selected) {
    this.asked += 1;
    const mine = this.asked;
    const { context } = this;
    if (!Number.isFinite(step)) {
      fill(this.element, empty("No step is selected.", "Click on a lane, or search for a step by its name."));
      return;
    }
    try {
      this.told = await context.ask("timeline.step", { step });
    } catch (error) {
      if (mine === this.asked) fill(this.element, failure(error));
      return;
    }
    if (mine !== this.asked) return;
    const told = this.told.head;
    const unit = unitOf(context);
    const parts = { compute: told.kind === "copy" ? 0 : told.compute_cycles, arrange: told.kind === "copy" ? told.compute_cycles : 0, exchange: told.exchange_cycles, sync: told.sync_cycles, host: told.host_cycles };
    const { operation } = told;
    const go = (title, view, patch) => h("button.small", { onclick: () => context.go(view, patch) }, title);
    const tile = told.slowest_tile >= 0 ? told.slowest_tile : told.busiest_tile;
    fill(this.element,
      h("div.tcolumn", {},
        h("div.bar", {}, h("b.tstep", {}, told.name), h("span.dim", {}, told.kind)),
        h("div.bar", {}, go("program tree", "program", { step }), operation ? go("operation", "operations", { op: told.op }) : null, go("memory while it runs", "liveness", { step }),
          tile >= 0 ? go(`tile ${count(tile)}`, "memory", { tiles: tile }) : null, told.exchanged_bytes ? go("exchange", "exchange", { step }) : null),
        h("table.tfigures", {},
          selected ? row("this execution", `cycle ${count(selected.start)} to ${count(selected.start + selected.cycles)}${selected.of ? `, ${count(selected.number)} of ${count(selected.of)} held` : ""}`) : null,
          row("one execution", `${count(told.cycles)} cycles = ${seconds(context.seconds(told.cycles))}`),
          row("executions", `${count(told.executions)} (${told.basis || "static"})${told.held < told.executions ? `, of which the report holds ${count(told.held)}` : ""}`),
          row("per run", `${count(told.cycles * told.executions)} cycles`),
          told.critical ? row("on the critical path", percent(told.critical)) : null,
          row("first starts at", told.start_cycle >= 0 ? count(told.start_cycle) : "never"),
          told.groups.length ? row("keeps busy", whereText(told.groups)) : null,
          told.block ? row("block", told.block) : null)),
      h("div.tcolumn", {},
        shares(entries(parts), Math.max(told.cycles, 1)),
        legend(entries(parts).map(([colour, title, value]) => [colour, `${title} ${count(value)}`])),
        h("table.tfigures", {},
          told.num_vertices ? row("vertices", `${count(told.num_vertices)} on ${count(told.active_tiles)} tiles`) : null,
          told.compute_cycles ? row("tile balance", percent(told.tile_balance)) : null,
          told.slowest_tile >= 0 ? row("slowest tile", count(told.slowest_tile)) : null,
          told.exchanged_bytes ? row(told.partner ? `moves with ${told.partner}` : "moves between tiles", bytes(told.exchanged_bytes, unit)) : null,
          told.max_receive_bytes ? row("most to one tile", bytes(told.max_receive_bytes, unit)) : null,
          operation ? row("operation", `${operation.name} (${operation.kind})`) : null,
          operation?.path ? row("of", operation.path) : null,
          operation?.file ? row("source", `${operation.file}:${operation.line}`) : null,
          operation?.flops ? row("arithmetic of the operation", `${short(operation.flops)} FLOP per run`) : null,
          operation ? row("operation takes", percent(operation.share)) : null)),
      h("div.tcolumn.grow", {}, h("div.dim", {}, byTile(this.told.arrays)), this.chart.element));
    const { compute, exchange } = this.told.arrays;
    this.chart.describe(`The step by tile: at most ${count(most(compute))} compute cycles and ${count(most(exchange))} bytes on a tile`);
    this.chart.redraw();
  }

  #draw(pen, { width, height, theme: colours }) {
    if (!this.told) return;
    const { compute, exchange } = this.told.arrays;
    const both = most(compute) > 0 && most(exchange) > 0;
    const draw = (values, top, tall, colour) => {
      const peak = most(values);
      if (!peak) return;
      pen.fillStyle = colours.rule;
      pen.fillRect(0, top + tall, width, 1);
      pen.fillStyle = colour;
      const each = width / values.length;
      values.forEach((value, i) => pen.fillRect(i * each, top + tall * (1 - value / peak), Math.max(each - (each > 4 ? 1 : 0), 0.6), (tall * value) / peak));
    };
    const tall = both ? height / 2 - 8 : height - 12;
    draw(compute, 2, tall, colours.parts.compute);
    draw(exchange, both ? height / 2 + 2 : 2, tall, colours.parts.exchange);
  }

  destroy() {
    this.chart.destroy();
  }
}
