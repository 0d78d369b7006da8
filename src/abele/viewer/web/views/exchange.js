// Exchanges: which cost most, and of one which tiles send and receive how much, on the floor plan and over IPUs.

import { facts, lastScopes, link, listing, part, source, untold } from "abele/core/detail.js";
import { fill, h } from "abele/core/dom.js";
import { FloorPlan } from "abele/core/floorplan.js";
import { bytes, count, percent, seconds, short } from "abele/core/format.js";
import { choice, empty, failure, figure, panel, split } from "abele/core/parts.js";
import { renewed } from "abele/core/renewed.js";
import { DataTable, fits, sorted } from "abele/core/table.js";
import { theme } from "abele/core/theme.js";
import { WhoToWhom } from "abele/views/exchange_whom.js";

/** One number for each tile of runs of tiles. */
export function byTile(first, counts, values, tiles) {
  const found = new Float64Array(tiles);
  for (let i = 0; i < first.length; i += 1) for (let t = first[i]; t < Math.min(first[i] + counts[i], tiles); t += 1) found[t] += values[i];
  return found;
}

export const mount = (context, place) => renewed(context, place, ofReport);

async function ofReport(context, place) {
  const { state } = context;
  const view = new ExchangeView(context, await context.ask("floor"));
  fill(place, view.element);
  return {
    update: (changed) => view.update(changed),
    destroy: () => view.destroy(),
    get charts() { return [state.get("exchange.side") === "whom" ? view.whom.chart : view.plan.chart]; },
    commands: [["Sent bytes on the floor plan", "sent"], ["Received bytes on the floor plan", null], ["Who sends to whom", "whom"]].map(([title, side]) => ({ title, run: () => state.set({ "exchange.side": side }) })),
  };
}

class ExchangeView {
  constructor(context, floor) {
    Object.assign(this, { context, asked: 0, answer: null });
    const { state } = context;
    const size = (v) => bytes(v, state.get("unit", "auto"));
    this.totals = h("div.figures.totals");
    this.table = new DataTable({
      label: "exchanges",
      sort: state.get("exchange.sort", "-total_cycles"), filter: state.get("exchange.filter"),
      columns: [
        { name: "name", title: "step", show: (v) => h("span", { title: v }, lastScopes(v)) },
        { name: "total_cycles", title: "cycles", right: true, width: 108, show: count },
        { name: "share", title: "%", right: true, width: 62, show: percent },
        { name: "cycles", title: "once", right: true, width: 96, show: count },
        { name: "executions", title: "×", right: true, width: 56, show: count },
        { name: "bytes", right: true, width: 86, show: size },
        { name: "max_receive_bytes", title: "most received", right: true, width: 116, show: size },
        { name: "senders", right: true, width: 82, show: count },
        { name: "receivers", right: true, width: 88, show: count },
        { name: "balance", right: true, width: 80, show: (v) => (v ? percent(v) : "") },
        { name: "bytes_per_cycle", title: "B/cycle", right: true, width: 76, show: short },
        { name: "partner", title: "with", width: 118 },
      ],
      page: (query) => this.#page(query),
      pick: (row) => state.set({ step: row.row }),
      changed: ({ filter, sort }) => state.set({ "exchange.filter": filter || null, "exchange.sort": sort === "-total_cycles" ? null : sort }),
    });
    this.side = choice("Picture", [["received", "received"], ["sent", "sent"], ["whom", "who to whom"]], state.get("exchange.side", "received"), (s) => state.set({ "exchange.side": s === "received" ? null : s }));
    this.whom = new WhoToWhom(context);
    this.picture = h("div.fill.lists");
    this.plan = new FloorPlan({
      label: "Floor plan of the exchange", name: "exchange", floor,
      select: (tiles) => state.set({ tiles: tiles || null }),
      tell: (tile) => this.#tellTile(tile),
      words: (value) => size(value),
    });
    this.tiles = h("div.told");
    this.details = h("div.told", { "aria-live": "polite" });
    const lower = h("div.exchange-lower", {},
      panel("Tiles", this.picture, this.side), panel("Busiest tiles", this.tiles), panel("What moves", this.details));
    const upper = panel("Exchanges", this.table.element, this.totals);
    this.element = split(upper, lower, state.number("exchange.split", 0.45), (value) => state.set({ "exchange.split": value.toFixed(2) }));
    this.#selected();
  }

  destroy() {
    this.table.destroy();
    this.plan.destroy();
    this.whom.destroy();
  }

  update(changed) {
    if (changed.has("unit")) this.table.refresh();
    if (changed.has("step") || changed.has("unit")) this.#selected();
    if (changed.has("exchange.side")) {
      this.side.show(this.context.state.get("exchange.side", "received"));
      this.#paint();
    }
    if (changed.has("tiles")) this.whom.chart.redraw();
    if (changed.has("tiles")) this.plan.mark(this.context.state.get("tiles"));
    if (changed.has("theme")) {
      this.plan.redraw();
      this.whom.chart.redraw();
    }
  }

  async #page({ filter, sort, first, count: most }) {
    const frozen = this.context.source.isFrozen;
    const { head, arrays } = await this.context.ask("exchanges", frozen ? { sort: "-total_cycles", count: 2000 } : { filter, sort, first, count: most });
    for (const column of this.table.columns) column.doc ??= head.columns.find((c) => c.name === column.name)?.doc;
    let rows = Array.from({ length: arrays.row.length }, (_, i) => {
      const row = { row: arrays.row[i] };
      for (const { name, text } of head.columns) row[name] = text ? head.text[name][i] : arrays[name][i];
      return row;
    });
    fill(this.totals, figure(count(head.found), "steps that move data"), figure(count(head.cycles), "cycles per run"), figure(seconds(this.context.seconds(head.cycles)), "one after the other"), figure(bytes(head.bytes, this.context.state.get("unit", "auto")), "moved per run"));
    // The costliest is shown until somebody chooses.
    if (rows.length && !filter && first === 0 && !(this.context.state.number("step") >= 0)) this.#show((rows.find((row) => row.receivers > 0) ?? rows[0]).row);
    if (!frozen) return { total: head.total, found: head.found, rows };
    rows = sorted(rows.filter((row) => fits(row, filter)), sort);
    return { total: head.total, found: rows.length, rows: rows.slice(first, first + most) };
  }

  #selected() {
    const step = this.context.state.number("step");
    if (step >= 0) this.#show(step);
    else if (!this.answer) {
      fill(this.tiles, empty("Select an exchange above."));
      fill(this.details, empty("Select an exchange above."));
    }
  }

  async #show(step) {
    this.table.select(step);
    this.asked += 1;
    const mine = this.asked;
    try {
      const answer = await this.context.ask("exchange", { step });
      if (mine !== this.asked) return;
      this.answer = answer;
      this.received = null;
      this.#paint();
      this.#tell();
    } catch (error) {
      if (mine === this.asked) fill(this.details, failure(error));
    }
  }

  #paint() {
    if (!this.answer) return;
    const { arrays } = this.answer;
    const tiles = this.context.facts.num_tiles;
    this.received ??= { sent: byTile(arrays.first, arrays.count, arrays.sent, tiles), received: byTile(arrays.first, arrays.count, arrays.received, tiles) };
    const side = this.context.state.get("exchange.side", "received");
    if (side === "whom") {
      fill(this.picture, this.answer.head.told ? this.whom.element : empty("This report does not tell who sends to whom in this exchange.", "Reports of format 7 hold it for the exchanges that cost most."));
      this.whom.show(this.answer);
      return;
    }
    fill(this.picture, this.plan.element);
    this.plan.show(this.received[side === "sent" ? side : "received"], { least: 0 });
    this.plan.mark(this.context.state.get("tiles"));
  }

  #tellTile(tile) {
    if (!this.received) return [`tile ${tile}`];
    const size = (v) => bytes(v, this.context.state.get("unit", "auto"));
    return [`tile ${count(tile)}`, ["sends", size(this.received.sent[tile] ?? 0)], ["receives", size(this.received.received[tile] ?? 0)]];
  }

  #tell() {
    const { head, arrays } = this.answer;
    const { context } = this;
    const size = (v) => bytes(v, context.state.get("unit", "auto"));
    const colour = theme().parts.exchange;
    const bars = (title, who, amount, whole) => {
      const most = Math.max(1, ...amount);
      return part(title, who.length ? h("div.bars", { role: "list", "aria-label": title }, Array.from(who, (name, i) => {
        const bar = h("i");
        bar.style.width = `${(amount[i] / most) * 100}%`;
        bar.style.background = colour;
        return h("div.bar-row", { role: "listitem" }, whole ? h("span", {}, `IPU ${name}`) : h("button.link", { onclick: () => context.state.set({ tiles: String(name) }) }, `tile ${count(name)}`), h("span.bar-space", {}, bar), h("span.right", {}, size(amount[i])));
      })) : h("p.dim", {}, "none"));
    };
    const several = arrays.ipu_sent.length > 1;
    const ipus = (amount) => [...amount.keys()].filter((i) => amount[i] > 0).sort((a, b) => amount[b] - amount[a]).slice(0, 24);
    const sending = ipus(arrays.ipu_sent);
    const receiving = ipus(arrays.ipu_received);
    const pairs = [...arrays.pair_bytes.keys()].sort((a, b) => arrays.pair_bytes[b] - arrays.pair_bytes[a]).slice(0, 40);
    const links = [...arrays.link_bytes.keys()].slice(0, 40);
    fill(this.tiles, h("div.two", {},
      pairs.length ? part("Between IPUs", listing("Bytes between IPUs", [["IPUs", (i) => `${arrays.pair_from[i]} → ${arrays.pair_to[i]}`], ["bytes", (i) => size(arrays.pair_bytes[i]), true]], pairs)) : null,
      links.length ? part("Links, busiest first", listing("Bytes of links", [["link", (i) => `${head.link_kinds[i]} ${arrays.link_from[i]} → ${arrays.link_to[i]}`], ["bytes", (i) => size(arrays.link_bytes[i]), true]], links)) : null,
      several ? bars("IPUs receive", receiving, receiving.map((i) => arrays.ipu_received[i]), true) : null,
      several ? bars("IPUs send", sending, sending.map((i) => arrays.ipu_sent[i]), true) : null,
      bars("Receive most", arrays.receivers, arrays.receivers_bytes), bars("Send most", arrays.senders, arrays.senders_bytes)));
    const f = head.facts;
    const cycles = f.exchange_cycles + f.host_cycles;
    fill(this.details,
      head.before >= 0 ? h("p", {}, "This step moves nothing; ", h("button.link", { onclick: () => context.state.set({ step: head.before }) }, "the exchange before it"), " brings its data.") : null,
      part(f.name, facts([
        ["cycles", `${count(cycles)} × ${count(f.executions)}`],
        ["bytes", size(f.exchanged_bytes)],
        ["rate", cycles ? `${size(f.exchanged_bytes / cycles)} per cycle, ${size((f.exchanged_bytes / cycles) * (head.clock_hz || 0))}/s` : ""],
        ["most received", f.max_receive_bytes ? `${size(f.max_receive_bytes)} by one tile` : ""],
        ["with", f.partner],
        ["exchange code", head.superstep?.exchange_code_bytes ? size(head.superstep.exchange_code_bytes) : ""],
        ["buffers", head.superstep?.buffer_bytes ? size(head.superstep.buffer_bytes) : ""],
        ["source", source(head.op?.file, head.op?.line)],
      ])),
      h("div.links", {}, head.op ? link(context, `operation ${head.op.name}`, "operations", { op: f.op }) : null, link(context, "the step", "program", { step: head.step }), link(context, "matrix", "matrix", { step: head.step, "matrix.metric": "received_bytes" })),
      part("Variables of the superstep", head.variables === null ? untold() : head.variables.length ? listing("Variables that are read and written", [["variable", (v) => link(context, v.name, "memory", { variable: v.variable })], ["type", (v) => `${v.type}${v.shape ? ` [${v.shape}]` : ""}`], ["reads", (v) => (v.read ? size(v.read) : ""), true], ["writes", (v) => (v.written ? size(v.written) : ""), true], ["tiles", (v) => v.tiles, true]], head.variables) : h("p.dim", {}, "none")));
  }
}
