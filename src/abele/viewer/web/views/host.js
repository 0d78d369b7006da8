// What was measured on the host, beside the modelled machine: runs, tracepoints, traces of files.

import { Brush } from "abele/core/brush.js";
import { Chart } from "abele/core/chart.js";
import { everyFrame, fill, h, settled } from "abele/core/dom.js";
import { count, percent, short } from "abele/core/format.js";
import { choice, empty, failure, shares, split, tabs, toggle } from "abele/core/parts.js";
import { Range, arrows, steer } from "abele/core/range.js";
import { NOTHING, renewed } from "abele/core/renewed.js";
import { DataTable, arrayRows } from "abele/core/table.js";
import { theme } from "abele/core/theme.js";
import { tips } from "abele/core/tip.js";
import { drawAxis } from "abele/views/timeline/axis.js";
import { hashed } from "abele/views/timeline/paint.js";
import { Search } from "abele/views/timeline/search.js";
import { MachineRun } from "abele/views/host/machine.js";
import { HostPicture } from "abele/views/host/picture.js";
import { rowsOf } from "abele/views/host/rows.js";
import { detailTable, profileTables, runsTable } from "abele/views/host/tables.js";
import { lengthText, time } from "abele/views/host/times.js";
import { font } from "abele/views/timeline/labels.js";

const MARGIN = 8;
const ROW = 40;

export const mount = (context, place) => renewed(context, place, ofReport);

async function ofReport(context, place) {
  const { head } = await context.ask("host.outline");
  if (head.sources.length || head.leaves) return new HostView(context, place, head);
  fill(place, empty("Nothing was measured on the host.", "Run the program before its report is saved, or open a trace beside it: abele view REPORT TRACE"));
  return NOTHING;
}

class HostView {
  constructor(context, place, outline) {
    Object.assign(this, { context, place, outline });
    const { state } = context;
    this.range = new Range(0, Math.max(outline.duration, 1), Math.min(100, Math.max(outline.duration, 1)));
    if (state.get("host.low") !== "") this.range.set(state.number("host.low", 0), state.number("host.high", outline.duration));
    this.selected = null;
    this.tables = [];
    this.asked = 0;
    this.redraw = everyFrame(() => {
      this.chart.redraw();
      this.brush.redraw();
    });
    this.picture = new HostPicture(context, outline, this.range, this.redraw, () => this.#how());
    this.chart = new Chart({ label: "Events of the host", name: "host", draw: (pen, size) => this.#draw(pen, size) });
    this.brush = new Brush({ range: this.range, label: "Overview of the host", margins: () => ({ left: this.picture.left, right: MARGIN }), height: 34, text: (r) => `${time(r.low)} to ${time(r.high)}`, draw: (pen, size) => this.#overview(pen, size) });
    this.search = new Search(context, {
      label: "Search events", name: "host.search", find: (text) => context.ask("host.find", { text }), now: () => (this.range.low + this.range.high) / 2,
      go: ({ arrays }, i) => {
        const room = Math.max(arrays.cycles[i] * 6, Math.min(this.range.span, arrays.cycles[i] * 60), 2000);
        this.range.set(arrays.start[i] + arrays.cycles[i] / 2 - room / 2, arrays.start[i] + arrays.cycles[i] / 2 + room / 2);
        this.#pick(arrays.source[i], arrays.row[i]);
      },
    });
    this.#build();
    this.range.addEventListener("change", () => this.#moved());
    this.#steer();
    context.keys.steer(this.range);
    this.#again();
  }

  get charts() {
    return [this.chart];
  }

  get commands() {
    const flip = (name) => () => this.context.state.set({ [name]: this.context.state.get(name) ? null : "1" });
    return [
      { title: "Host: collapse all rows", run: () => this.#shutAll(true) },
      { title: "Host: expand all rows", run: () => this.#shutAll(false) },
      { title: "Host: lines or areas", run: flip("host.area") },
      { title: "Host: all series in one graph", run: flip("host.merged") },
      { title: "Host: heat maps with logarithmic colours", run: flip("host.log") },
      { title: "Host: relative or absolute time", key: "u", run: flip("host.absolute") },
      { title: "Host: next found", key: "n", run: () => this.search.next(1) },
      { title: "Host: previous found", key: "N", run: () => this.search.next(-1) },
    ];
  }

  #set(name) {
    return new Set(this.context.state.get(name).split(",").filter(Boolean).map(decodeURIComponent));
  }

  #how() {
    const { state } = this.context;
    // Asked for several times a frame: made anew only when the state says other things.
    const told = ["host.shut", "host.pinned", "host.area", "host.merged", "host.log"].map((n) => state.get(n)).join("|");
    if (this.told !== told) {
      this.told = told;
      this.choices = { shut: this.#set("host.shut"), pinned: this.#set("host.pinned"), area: !!state.get("host.area"), merged: !!state.get("host.merged"), log: !!state.get("host.log") };
    }
    return { ...this.choices, selected: this.selected, window: this.dragged ?? this.window };
  }

  get window() {
    const { state } = this.context;
    const [from, to] = [state.number("host.from"), state.number("host.to")];
    return Number.isFinite(from) && Number.isFinite(to) && to > from ? [from, to] : null;
  }

  get origin() {
    return this.outline.sources.find((source) => source.origin)?.origin ?? null;
  }

  #keep(name, set) {
    this.context.state.set({ [name]: [...set].map(encodeURIComponent).join(",") || null });
  }

  #toggleRow(name, key) {
    const set = new Set(this.#set(name));
    if (!set.delete(key)) set.add(key);
    this.#keep(name, set);
  }

  #shutAll(shut) {
    const rows = rowsOf(this.outline, { ...this.#how(), shut: new Set() }).filter((row) => row.kind !== "head");
    this.#keep("host.shut", shut ? rows.map((row) => row.key) : []);
  }

  #build() {
    const { state } = this.context;
    this.bar = h("div.bar");
    this.make = () => {
      const { sources } = this.outline;
      const has = (what) => sources.some((source) => source[what].length);
      const set = (name) => () => state.set({ [name]: state.get(name) ? null : "1" });
      fill(this.bar, this.search.element,
        h("button.small", { onclick: () => this.#shutAll(true) }, "collapse all"), h("button.small", { onclick: () => this.#shutAll(false) }, "expand all"),
        this.origin ? choice("Time", [["", "relative"], ["1", "absolute"]], state.get("host.absolute"), (v) => state.set({ "host.absolute": v || null })) : null,
        has("series") ? [toggle("areas", !!state.get("host.area"), set("host.area")), toggle("one graph", !!state.get("host.merged"), set("host.merged"))] : null,
        has("heatmaps") ? toggle("log colours", !!state.get("host.log"), set("host.log")) : null,
        h("span.grow"), h("span.dim", {}, `${count(sources.reduce((sum, source) => sum + source.events, 0))} events, ${time(this.outline.duration)}`));
    };
    this.make();
    const notes = this.outline.sources.flatMap((source) => [source.note, source.left_out ? `${count(source.left_out)} threads with fewer events are not shown.` : ""]).filter(Boolean);
    const note = h("div.tnote.dim", { role: "note" }, notes.join(" "));
    note.hidden = !notes.length;
    this.event = h("div.tdetails");
    this.machine = new MachineRun(this.context);
    const entries = [["event", "Event", () => this.event], ["names", "Statistics", () => this.#names()], ["tree", "Call tree", () => this.#tree()], ["machine", "Machine", () => this.machine.element]];
    if (this.outline.runs) entries.push(["runs", "Runs", () => runsTable(this.context, this.outline, (how) => this.#table(how), (source, row) => this.#pick(source, row))]);
    if (this.outline.leaves) entries.push(["profile", "Profile", () => profileTables(this.context, this.outline, (how) => this.#table(how))]);
    entries.push(["rows", "Rows", () => this.#rows()]);
    this.tabs = tabs("Details", entries, state.get("host.tab", this.outline.sources.length ? "event" : "profile"), (name) => state.set({ "host.tab": name === "event" ? null : name }));
    this.#event(null);
    this.machine.show(null);
    const lower = h("section.panel.fill", { "aria-label": "Details" }, this.tabs);
    const charts = h("div.tcharts", {}, this.brush.element, h("div.tmain", {}, this.chart.element));
    fill(this.place, this.bar, note, this.outline.sources.length ? split(charts, lower, state.number("host.split", 0.6), (part) => state.set({ "host.split": part.toFixed(3) })) : lower);
    this.#words();
  }

  #steer() {
    const { canvas } = this.chart;
    steer(canvas, this.range, () => ({ left: this.picture.left, width: this.chart.width - this.picture.left - MARGIN }), {
      select: (low, high, done) => this.#select(low, high, done),
      click: (event) => this.#click(event),
      across: (pixels) => this.#scroll(pixels),
    });
    arrows(canvas, this.range, (direction) => this.#scroll(direction * ROW));
    tips(canvas, (event) => this.#tip(event));
  }

  #scroll(pixels) {
    this.picture.scroll += pixels;
    this.redraw();
  }

  #place(event) {
    return this.picture.at(...this.chart.at(event), this.chart.width, this.chart.height);
  }

  #tip(event) {
    const at = this.#place(event);
    if (!at) return null;
    if (at.isLabel) return at.isPin ? [at.row.pinned ? "Pinned: click to let it go" : "Click to pin it on top"] : [at.row.title, at.row.note || null].filter(Boolean);
    if (at.mark) return [at.mark.name, ["at", this.#when(at.mark.time)]];
    if (at.event) {
      const { name, count: several, cycles, start } = at.event;
      return several > 1 ? [`${name}, the longest of ${count(several)} here`, ["zoom in", "to see them"]] : [name, ["takes", lengthText(cycles)], ["from", this.#when(start)]];
    }
    if (at.values) return [at.row.title, ["at", this.#when(at.time)], ...at.values.map(([name, value, unit]) => [name, `${short(value)} ${unit}`])];
    if (at.count) return [at.row.title, ["at", this.#when(at.time)], ["from", short(at.count.from)], ["to", short(at.count.to)], ["values", count(at.count.count)]];
    return null;
  }

  #when(ns) {
    if (!this.context.state.get("host.absolute") || !this.origin) return time(ns);
    const date = new Date((this.origin + ns) / 1e6);
    return `${date.toLocaleTimeString("en-GB")}.${String(Math.floor(((this.origin / 1000 + ns / 1000) % 1e6))).padStart(6, "0")}`;
  }

  #click(event) {
    const at = this.#place(event);
    if (!at) return;
    if (at.isPin) this.#toggleRow("host.pinned", at.row.key);
    else if (at.isLabel) this.#toggleRow("host.shut", at.row.key);
    else if (at.event) this.#pick(at.event.source, at.event.row);
  }

  #pick(source, row) {
    this.context.state.set({ "host.event": `${source}-${row}`, "host.tab": null });
    this.tabs.show("event");
  }

  #select(low, high, done) {
    this.dragged = [Math.max(Math.round(low), 0), Math.min(Math.round(high), this.outline.duration)];
    if (done) {
      const [from, to] = this.dragged;
      this.dragged = null;
      this.context.state.set({ "host.from": from, "host.to": to, "host.tab": "names" });
    }
    this.redraw();
  }

  #moved() {
    this.redraw();
    this.keep ??= settled(() => {
      const whole = this.range.low <= 0 && this.range.high >= this.outline.duration;
      this.context.state.set({ "host.low": whole ? null : Math.round(this.range.low), "host.high": whole ? null : Math.round(this.range.high) });
      this.#words();
    }, 200);
    this.keep();
  }

  #words() {
    const rows = rowsOf(this.outline, this.#how()).filter((row) => row.kind !== "head");
    this.chart.describe(`Events of the host, ${time(this.range.low)} to ${time(this.range.high)}: ${rows.slice(0, 20).map((row) => (row.events ? `${row.title} with ${count(row.events)} events` : row.title)).join(", ")}`);
  }

  #draw(pen, size) {
    const { left } = this.picture;
    pen.fillStyle = size.theme.panel;
    pen.fillRect(0, 0, size.width, size.height);
    drawAxis(pen, { low: this.range.low, high: this.range.high, left, width: size.width - left - MARGIN, height: size.height, theme: size.theme, seconds: 1e-9 });
    if (this.context.state.get("host.absolute") && this.origin) {
      pen.fillStyle = size.theme.dim;
      pen.font = font(12);
      pen.textBaseline = "middle";
      pen.textAlign = "left";
      pen.fillText(`from ${this.#when(this.range.low)}`, 6, 10);
    }
    this.picture.draw(pen, size);
  }

  /** Outermost events of all threads. */
  #overview(pen, { left, width, height, theme: colours }) {
    const rows = this.outline.sources.flatMap((source, s) => source.threads.filter((thread) => thread.events).map((thread) => ({ source: s, thread: thread.thread }))).slice(0, 24);
    const each = height / Math.max(rows.length, 1);
    rows.forEach((row, n) => {
      const answer = this.picture.events.tile(0, 0, row);
      if (!answer) return;
      const { depth, start, cycles, node } = answer.arrays;
      for (let i = 0; i < depth.length && depth[i] === 0; i += 1) {
        pen.fillStyle = colours.series[hashed(answer.head.names[node[i]]) % colours.series.length];
        pen.fillRect(left + (start[i] / this.outline.duration) * width, n * each, Math.max((cycles[i] / this.outline.duration) * width, 0.7), Math.max(each - 0.5, 1));
      }
    });
  }

  /** The event that the state names. */
  async #again() {
    const match = /^(\d+)-(\d+)$/.exec(this.context.state.get("host.event"));
    this.asked += 1;
    const mine = this.asked;
    if (!match) {
      this.selected = null;
      this.#event(null);
      this.redraw();
      return;
    }
    const [source, row] = match.slice(1).map(Number);
    try {
      const { head } = await this.context.ask("host.event", { source, row });
      if (mine !== this.asked) return;
      this.selected = { source, row };
      this.#event(head, source);
      this.machine.show(head);
    } catch (error) {
      if (mine !== this.asked) return;
      fill(this.event, failure(error));
    }
    this.redraw();
  }

  #event(told, source) {
    if (!told) {
      fill(this.event, empty("No event is selected.", "Click on one, or search for it by name; shift and drag selects a window."));
      return;
    }
    const row = (name, value) => h("tr", {}, h("td", {}, name), h("td", {}, value));
    const mark = h("i");
    mark.style.background = theme().series[hashed(told.name) % theme().series.length];
    fill(this.event, h("div.tcolumn", {},
      h("div.bar", {}, h("span.legend", {}, h("span", {}, mark)), h("b.tstep", {}, told.name), told.channel ? h("span.dim", {}, told.channel) : null,
        h("button.small", { onclick: () => this.range.set(told.start - told.cycles * 0.1, told.start + told.cycles * 1.1) }, "zoom to it"),
        told.program >= 0 ? h("button.small", { onclick: () => this.context.state.set({ "host.tab": "machine" }) }, "what the machine does") : null),
      h("table.tfigures", {},
        row("takes", `${lengthText(told.cycles)}${told.is_open ? ", and goes on" : ""}`), row("of that itself", lengthText(told.self)), row("from", this.#when(told.start)), row("to", this.#when(told.start + told.cycles)),
        row("thread", `${told.thread} of ${told.process}`), row("events of this name", `${count(told.alike)}, ${time(told.alike_total)} in all`))),
    h("div.tcolumn", {}, told.parents.length ? [h("div.dim", {}, "inside of"), told.parents.map((parent) => h("div", {}, h("button.small", { onclick: () => this.#pick(source, parent.row) }, parent.name)))] : h("div.dim", {}, "inside of no other event"),
      told.detail ? [h("div.dim", {}, "told with it"), detailTable(told.detail)] : null));
  }

  #table(how) {
    const table = new DataTable(how);
    this.tables.push(table);
    return table;
  }

  async #figures() {
    const params = this.window ? { from: this.window[0], to: this.window[1] } : {};
    return (await this.context.ask("host.window", params)).head;
  }

  #names() {
    const page = async (query) => {
      const { names } = await this.#figures();
      return arrayRows(() => names.map((entry, i) => ({ ...entry, row: i })))(query);
    };
    this.statistics = this.#table({
      label: "events by name", sort: "-total",
      columns: [{ name: "name", title: "event" }, { name: "channel", width: 110 }, { name: "count", right: true, width: 80, show: count }, { name: "total", right: true, width: 100, show: time },
        { name: "self", title: "itself", right: true, width: 100, show: time }, { name: "mean", right: true, width: 100, show: lengthText }, { name: "most", title: "longest", right: true, width: 100, show: lengthText }],
      page, pick: (row) => {
        this.search.input.value = row.name;
        this.search.look().then(() => this.search.next(1));
      },
    });
    this.scope = h("div.bar");
    this.#scoped();
    return h("div.table", {}, this.scope, this.statistics.element);
  }

  #scoped() {
    if (!this.scope) return;
    const { window } = this;
    fill(this.scope, window ? [h("b", {}, `${time(window[0])} to ${time(window[1])} (${time(window[1] - window[0])})`),
      h("button.small", { onclick: () => this.range.set(...window) }, "zoom to it"), h("button.small", { onclick: () => this.context.state.set({ "host.from": null, "host.to": null }) }, "clear")] : h("span.dim", {}, "All of it; shift and drag selects a window."));
  }

  #tree() {
    const body = h("div.ttree", { role: "tree", "aria-label": "Call tree" });
    let grown = 0;
    const grow = async () => {
      grown += 1;
      const mine = grown;
      const { tree } = await this.#figures();
      if (mine !== grown) return;
      const under = new Map();
      tree.forEach((node, i) => under.set(node.parent, [...(under.get(node.parent) ?? []), i]));
      const whole = (under.get(-1) ?? []).reduce((sum, i) => sum + tree[i].total, 0) || 1;
      const branch = (i) => {
        const node = tree[i];
        const inner = (under.get(i) ?? []).sort((a, b) => tree[b].total - tree[a].total);
        const head = h("span.tnode", {}, h("span.tname", { title: node.name }, node.name), shares([[theme().series[hashed(node.name) % theme().series.length], node.name, node.total]], whole),
          h("span.right", {}, time(node.total)), h("span.right.dim", {}, percent(node.total / whole)), h("span.right.dim", {}, `${count(node.count)}×`), h("span.right.dim", {}, `itself ${time(node.self)}`));
        return inner.length ? h("details", { open: true, role: "treeitem" }, h("summary", {}, head), inner.map(branch)) : h("div.tleaf", { role: "treeitem" }, head);
      };
      fill(body, (under.get(-1) ?? []).sort((a, b) => tree[b].total - tree[a].total).map(branch));
      if (!tree.length) fill(body, empty("No events in this window."));
    };
    this.grow = () => grow().catch((error) => fill(body, failure(error)));
    this.grow();
    return body;
  }

  #rows() {
    const rows = () => rowsOf(this.outline, { ...this.#how(), shut: new Set(), pinned: new Set() }).filter((row) => row.kind !== "head");
    this.listed = this.#table({
      label: "rows of the picture", placeholder: "filter rows",
      columns: [{ name: "title", title: "row" }, { name: "kind", width: 90 }, { name: "events", right: true, width: 90, show: (v) => (v ? count(v) : "") },
        { name: "pin", title: "on top", width: 90, show: (_, row) => toggle("pinned", this.#how().pinned.has(row.key), () => this.#toggleRow("host.pinned", row.key)) },
        { name: "open", width: 90, show: (_, row) => toggle("open", !this.#how().shut.has(row.key), () => this.#toggleRow("host.shut", row.key)) }],
      page: arrayRows(() => rows().map((row, i) => ({ ...row, row: i, events: row.events ?? 0, pin: 0, open: 0 }))),
    });
    return this.listed.element;
  }

  update(changed) {
    const { state } = this.context;
    if (["host.area", "host.merged", "host.log", "host.absolute", "theme"].some((n) => changed.has(n))) this.make();
    if (changed.has("host.event")) this.#again();
    if (changed.has("host.tab")) this.tabs.show(state.get("host.tab", "event"));
    if (changed.has("host.from") || changed.has("host.to")) {
      this.statistics?.refresh();
      this.grow?.();
      this.#scoped();
    }
    if (changed.has("host.shut") || changed.has("host.pinned")) this.listed?.redraw();
    if (changed.has("host.low") || changed.has("host.high")) {
      const [low, high] = [state.number("host.low", 0), state.number("host.high", this.outline.duration)];
      if (Math.abs(low - this.range.low) > 1 || Math.abs(high - this.range.high) > 1) this.range.set(low, high);
    }
    this.machine.redraw();
    this.redraw();
  }

  destroy() {
    this.asked += 1;
    this.chart.destroy();
    this.brush.destroy();
    this.machine.destroy();
    this.search.destroy();
    for (const table of this.tables) table.destroy();
  }
}
