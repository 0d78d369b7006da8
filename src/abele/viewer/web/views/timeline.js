// When each IPU does what: lanes of sync groups and streams, flames of names, tiles over time; figures of what is selected below.

import { Brush } from "abele/core/brush.js";
import { Chart } from "abele/core/chart.js";
import { everyFrame, fill, h, settled } from "abele/core/dom.js";
import { count, cycles, percent, ranges, seconds } from "abele/core/format.js";
import { partTitle } from "abele/core/part_titles.js";
import { choice, empty, legend, split, tabs, toggle } from "abele/core/parts.js";
import { Range, arrows, steer } from "abele/core/range.js";
import { NOTHING, renewed } from "abele/core/renewed.js";
import { theme } from "abele/core/theme.js";
import { tips } from "abele/core/tip.js";
import { drawAxis } from "abele/views/timeline/axis.js";
import { RunDetails, StepDetails, WindowDetails } from "abele/views/timeline/details.js";
import { LanesPicture } from "abele/views/timeline/lanes.js";
import { COLUMNS, stackedShares } from "abele/views/timeline/overview.js";
import { Search } from "abele/views/timeline/search.js";
import { TilesPicture } from "abele/views/timeline/tiles.js";

const MARGIN = 8;
const ROW = 40;

export const mount = (context, place) => renewed(context, place, ofProgram, ["program"]);

async function ofProgram(context, place) {
  const { head } = await context.ask("timeline.outline", { program: context.program });
  if (head.lanes.some((lane) => lane.spans > 0)) return new TimelineView(context, place, head);
  fill(place, empty("This program has no steps.", "Another program may have: choose it above."));
  return NOTHING;
}

class TimelineView {
  constructor(context, place, outline) {
    Object.assign(this, { context, place, outline });
    const { state } = context;
    const { total } = outline;
    this.range = new Range(0, total, Math.min(total, 20));
    this.rows = new Range(0, Math.max(outline.num_tiles, 1), 1);
    if (state.get("timeline.low") !== "") this.range.set(state.number("timeline.low", 0), state.number("timeline.high", total));
    const rows = ranges(state.get("timeline.rows"));
    if (rows?.length) this.rows.set(rows[0][0], rows[0][1] + 1);
    this.selected = null;
    this.redraw = everyFrame(() => this.#redraw());
    const how = () => this.#how();
    this.lanes = new LanesPicture(context, outline, this.range, this.redraw, how);
    this.tiles = new TilesPicture(context, outline, this.range, this.rows, this.redraw, how);
    this.chart = new Chart({ label: "Timeline", name: "timeline", draw: (pen, size) => this.#draw(pen, size) });
    this.brush = new Brush({
      range: this.range, label: "Overview of the run", margins: () => ({ left: this.picture.left, right: MARGIN }), height: 44, text: (r) => this.#windowText(r.low, r.high),
      draw: (pen, size) => this.#overview(pen, size),
    });
    this.search = new Search(context, {
      find: (text) => context.ask("timeline.find", { program: context.program, text }),
      go: (found, i) => this.#found(found, i),
      now: () => (this.range.low + this.range.high) / 2,
    });
    this.run = new RunDetails(context, (step, start) => this.fly(start, Math.max(outline.total / 200, 2000), { step }));
    this.windowed = new WindowDetails(context);
    this.step = new StepDetails(context);
    this.seen = h("table.tseen", { "aria-label": "What is visible" });
    this.#build();
    this.range.addEventListener("change", () => this.#moved());
    this.rows.addEventListener("change", () => this.#moved());
    this.#steer();
    context.keys.steer(this.range);
    this.#details(new Set(["from", "step"]));
  }

  get picture() {
    return this.isTiles ? this.tiles : this.lanes;
  }

  get isTiles() {
    return this.outline.has_tiles && this.context.state.get("timeline.view") === "tiles";
  }

  get charts() {
    return [this.chart];
  }

  get commands() {
    const set = (patch) => () => this.context.state.set(patch);
    const { state } = this.context;
    return [
      { title: "Timeline: lanes or tiles", key: "b", run: () => this.outline.has_tiles && state.set({ "timeline.view": this.isTiles ? null : "tiles" }) },
      { title: "Timeline: flat or flame", key: "f", run: () => state.set({ "timeline.shape": state.get("timeline.shape") === "flame" ? null : "flame" }) },
      { title: "Timeline: cycles or seconds", key: "u", run: () => state.set({ "timeline.axis": state.get("timeline.axis") === "seconds" ? null : "seconds" }) },
      { title: "Timeline: critical path", key: "p", run: () => this.#over("critical") },
      { title: "Timeline: bubbles", run: () => this.#over("bubbles") },
      { title: "Timeline: next found", key: "n", run: () => this.search.next(1) },
      { title: "Timeline: previous found", key: "N", run: () => this.search.next(-1) },
      { title: "Timeline: zoom to the selected window", key: "z", run: () => this.#zoomWindow() },
      { title: "Timeline: no window", run: set({ from: null, to: null }) },
    ];
  }

  get window() {
    const { state } = this.context;
    const [from, to] = [state.number("from"), state.number("to")];
    return Number.isFinite(from) && Number.isFinite(to) && to > from ? [from, to] : null;
  }

  #how() {
    const { state } = this.context;
    const over = state.get("timeline.over", "").split(",");
    return {
      shape: state.get("timeline.shape", "flat"),
      bubbles: over.includes("bubbles"),
      critical: over.includes("critical"),
      selected: this.selected,
      window: this.dragged ?? this.window,
      tiles: ranges(state.get("tiles")),
    };
  }

  get secondsEach() {
    return this.context.state.get("timeline.axis") === "seconds" ? 1 / (this.context.facts.clock_hz || 1) : 0;
  }

  #build() {
    const { context, outline } = this;
    const { state } = context;
    const words = (name, otherwise) => state.get(name, otherwise);
    this.bar = h("div.bar");
    const make = () => {
      const over = words("timeline.over").split(",");
      fill(this.bar,
        outline.has_tiles ? choice("What the rows are", [["lanes", "lanes"], ["tiles", "tiles"]], this.isTiles ? "tiles" : "lanes", (v) => state.set({ "timeline.view": v === "lanes" ? null : v })) : null,
        this.isTiles
          ? choice("Tiles that are seen", this.#tileChoices(), "", (v) => this.rows.set(...v.split("-").map(Number)))
          : choice("Shape", [["flat", "flat"], ["flame", "flame"]], words("timeline.shape", "flat"), (v) => state.set({ "timeline.shape": v === "flat" ? null : v })),
        choice("Unit of time", [["cycles", "cycles"], ["seconds", "seconds"]], words("timeline.axis", "cycles"), (v) => state.set({ "timeline.axis": v === "cycles" ? null : v })),
        this.isTiles ? null : [
          toggle("critical path", over.includes("critical"), () => this.#over("critical")),
          outline.lanes.filter((lane) => lane.group >= 0).length > 1 ? toggle("bubbles", over.includes("bubbles"), () => this.#over("bubbles")) : null],
        this.search.element,
        h("span.grow"),
        legend(this.#legend()));
    };
    make();
    this.make = make;
    const tab = state.get("timeline.tab", "run");
    this.tabs = tabs("Details", [["run", "Run", () => this.run.element], ["window", "Window", () => this.windowed.element], ["step", "Step", () => this.step.element]], tab,
      (name) => state.set({ "timeline.tab": name === "run" ? null : name }));
    const charts = h("div.tcharts", {}, this.brush.element, h("div.tmain", {}, this.chart.element, this.seen));
    this.note = h("div.tnote", { role: "note" });
    fill(this.place, this.bar, this.note, split(charts, h("section.panel.fill", { "aria-label": "Details" }, this.tabs), state.number("timeline.split", 0.6), (part) => state.set({ "timeline.split": part.toFixed(3) })));
    this.#notes();
  }

  #tileChoices() {
    const { num_tiles: tiles } = this.outline;
    const middle = Math.floor((this.rows.low + this.rows.high) / 2);
    const around = (n) => {
      const first = Math.min(Math.max(middle - Math.floor(n / 2), 0), Math.max(tiles - n, 0));
      return `${first}-${first + n}`;
    };
    const sizes = [1472, 256, 64, 16, 1].filter((n) => n < tiles);
    return [[`0-${tiles}`, "all"], ...sizes.map((n) => [around(n), n === 1 ? "one tile" : count(n)])];
  }

  #legend() {
    const { parts } = theme();
    const used = this.isTiles ? ["compute", "arrange", "exchange", "sync", "host"] : this.outline.parts.filter((part) => this.overview?.used.has(part) ?? true);
    const marks = used.map((part) => [parts[part], partTitle(part)]);
    marks.push([parts.idle, "waiting"]);
    if (!this.isTiles && this.#how().critical) marks.push([theme().bad, "critical path"]);
    return marks;
  }

  #notes() {
    const notes = [this.outline.note];
    if (this.#how().critical && !this.outline.has_critical) notes.push("The report does not hold the critical path.");
    if (this.isTiles) {
      if (this.tiles.workers) notes.push(this.outline.tells_workers
        ? "Workers: of a step whose vertices run on a worker each, as many workers compute as a tile has vertices, their mean over tiles; all of them where they share a vertex."
        : "Workers: the report does not say which of them compute; all are drawn for as long as their tile computes.");
      else notes.push("In a step a tile syncs, exchanges for as long as its own bytes take at the busiest tile's pace, and computes its own cycles; then it waits for the others. Ctrl + wheel zooms tiles.");
      if (this.outline.inferred) notes.push("Tiles of named groups are told by what steps of these alone touch.");
    }
    const text = notes.filter(Boolean).join(" ");
    this.note.textContent = text;
    this.note.hidden = !text;
    this.note.className = this.isTiles && !this.outline.note ? "tnote dim" : "tnote";
  }

  #over(name) {
    const { state } = this.context;
    const over = new Set(state.get("timeline.over").split(",").filter(Boolean));
    if (!over.delete(name)) over.add(name);
    state.set({ "timeline.over": [...over].join(",") || null });
  }

  #steer() {
    const { canvas } = this.chart;
    const plot = () => ({ left: this.picture.left, width: this.chart.width - this.picture.left - MARGIN });
    canvas.addEventListener("wheel", (event) => {
      if (!this.isTiles || !event.ctrlKey) return;
      const [, y] = this.chart.at(event);
      this.rows.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), this.rows.value(y - 20, this.chart.height - 20));
      event.preventDefault();
      event.stopImmediatePropagation();
    }, { passive: false, capture: true });
    steer(canvas, this.range, plot, {
      select: (low, high, done) => this.#select(low, high, done),
      click: (event) => this.#click(event),
      across: (pixels) => {
        if (this.isTiles) this.rows.set(this.rows.low + (pixels / (this.chart.height - 20)) * this.rows.span, this.rows.high + (pixels / (this.chart.height - 20)) * this.rows.span);
        else this.#scroll(pixels);
      },
    });
    arrows(canvas, this.range, (direction) => {
      if (this.isTiles) this.rows.move(direction * Math.max(0.1, 1 / this.rows.span));
      else this.#scroll(direction * ROW);
    });
    tips(canvas, (event) => this.#tip(event));
  }

  #scroll(pixels) {
    this.lanes.scroll += pixels;
    this.redraw();
  }

  #place(event) {
    return this.picture.at(...this.chart.at(event), this.chart.width, this.chart.height);
  }

  #tip(event) {
    const at = this.#place(event);
    if (!at) return null;
    const when = ["at", this.#time(at.cycle)];
    const where = at.tile === undefined ? at.lane >= 0 ? this.outline.lanes[at.lane].name : "" : at.tiles > 1 ? `${count(at.tiles)} tiles from tile ${count(at.tile - (at.tile % at.tiles))}` : `tile ${count(at.tile)}`;
    if (at.block) {
      const { name, number, count: several, cycles: long } = at.block;
      return [several > 1 ? `${name} and ${several - 1} more` : `${name}, run ${number}`, ["on", where], ["takes", cycles(long)], ["starts at", this.#time(at.block.start)]];
    }
    const found = at.flame ?? at.span;
    if (found) {
      const lines = [at.flame?.count > 1 ? `${found.name} and ${at.flame.count - 1} more` : found.name, ["on", where], ["takes", this.#length(found.cycles)], ["starts at", this.#time(found.start)]];
      if (at.tile !== undefined) {
        if (found.work) lines.push(["computes", `${count(found.compute)} of ${count(found.work)} cycles`]);
        if (found.exchange > 0) lines.push(["exchanges about", cycles(found.exchange)]);
      }
      return lines;
    }
    if (at.shares) {
      const parts = at.shares.filter(([, share]) => share > 0.002);
      const rest = 1 - parts.reduce((sum, [, share]) => sum + share, 0);
      return [where || "here", when, ...parts.map(([part, share]) => [partTitle(part), percent(share)]), rest > 0.004 ? ["waiting", percent(rest)] : null].filter(Boolean);
    }
    return where ? [where, when, ["waiting", ""]] : null;
  }

  #time(cycle) {
    return this.secondsEach ? seconds(cycle * this.secondsEach) : `cycle ${count(cycle)}`;
  }

  #length(long) {
    return `${cycles(long)} = ${seconds(this.context.seconds(long))}`;
  }

  async #click(event) {
    const at = this.#place(event);
    if (!at) return;
    const { context } = this;
    const patch = { "timeline.tab": "step" };
    if (at.tile !== undefined) {
      patch.tiles = at.tiles > 1 ? `${at.tile - (at.tile % at.tiles)}-${at.tile - (at.tile % at.tiles) + at.tiles - 1}` : String(at.tile);
      if (at.span) this.#pick({ ...at.span, lane: Math.max(at.lane, 0) }, patch);
      else context.state.set(patch);
      return;
    }
    if (at.lane < 0) return;
    let found = at.flame?.count === 1 && this.#how().shape === "flame" ? at.flame : at.span;
    if (at.block) found = null;
    if (at.block && at.block.count === 1) {
      context.state.set({ from: Math.round(at.block.start), to: Math.round(at.block.start + at.block.cycles), "timeline.tab": "window" });
      return;
    }
    const { head } = await context.ask("timeline.at", { program: context.program, lane: at.lane, at: Math.round(at.cycle * 4) / 4 }).catch(() => ({ head: at.span ?? { step: -1 } }));
    if (at.flame && found === at.flame) {
      // A name around several steps: its first one, and its time as the window.
      if (found.cycles > head.cycles) {
        this.#pick({ ...found, lane: at.lane }, { ...patch, from: Math.round(found.start), to: Math.round(found.start + found.cycles) });
        return;
      }
    }
    if (head.step >= 0) this.#pick({ ...head, lane: at.lane }, patch);
  }

  #pick(span, patch = {}) {
    this.selected = span;
    this.context.state.set({ step: span.step, "timeline.at": Math.round(span.start), "timeline.lane": span.lane, ...patch });
    this.redraw();
    this.#details(new Set(["step"]));
  }

  #select(low, high, done) {
    this.dragged = [Math.max(Math.round(low), 0), Math.min(Math.round(high), Math.ceil(this.outline.total))];
    if (done) {
      const [from, to] = this.dragged;
      this.dragged = null;
      this.context.state.set({ from, to, "timeline.tab": "window" });
    }
    this.redraw();
  }

  #zoomWindow() {
    if (this.window) this.range.set(...this.window);
  }

  /** Show a place, with something of what is around. */
  fly(start, length, patch = {}) {
    const room = Math.max(length * 4, 40);
    this.range.set(start + length / 2 - room / 2, start + length / 2 + room / 2);
    this.context.state.set(patch);
  }

  #found({ arrays }, i) {
    const span = { step: arrays.step[i], start: arrays.start[i], cycles: arrays.cycles[i], lane: arrays.lane[i] };
    const room = Math.max(span.cycles * 6, Math.min(this.range.span, span.cycles * 60), 60);
    this.range.set(span.start + span.cycles / 2 - room / 2, span.start + span.cycles / 2 + room / 2);
    this.#pick(span, { "timeline.tab": "step" });
  }

  #moved() {
    this.redraw();
    this.keep ??= settled(() => {
      const { range, rows } = this;
      const whole = range.low <= 0 && range.high >= this.outline.total;
      const every = rows.low <= 0 && rows.high >= this.outline.num_tiles;
      const round = (v) => (range.span > 100 ? Math.round(v) : Math.round(v * 100) / 100);
      this.context.state.set({
        "timeline.low": whole ? null : round(range.low), "timeline.high": whole ? null : round(range.high),
        "timeline.rows": every ? null : `${Math.round(rows.low)}-${Math.max(Math.round(rows.high) - 1, Math.round(rows.low))}`,
      });
      if (this.isTiles) this.#notes();
    }, 200);
    this.tell ??= settled(() => this.#words(), 40);
    this.keep();
    this.tell();
  }

  #redraw() {
    this.chart.redraw();
    this.brush.redraw();
  }

  #draw(pen, size) {
    const { left } = this.picture;
    pen.fillStyle = size.theme.panel;
    pen.fillRect(0, 0, size.width, size.height);
    drawAxis(pen, { low: this.range.low, high: this.range.high, left, width: size.width - left - MARGIN, height: size.height, theme: size.theme, seconds: this.secondsEach });
    this.picture.draw(pen, size);
  }

  /** All lanes together, over the whole run. */
  #overview(pen, { left, width, height, theme: colours }) {
    const answer = this.context.known("timeline.lanes", { program: this.context.program, level: 0, index: 0 });
    if (!answer) {
      this.lanes.lanes.tile(0, 0);
      return;
    }
    if (this.overview?.answer !== answer) {
      this.overview = { answer, ...stackedShares(answer, this.outline) };
      queueMicrotask(() => this.make());
    }
    const { bars } = this.overview;
    pen.fillStyle = colours.parts.idle;
    pen.globalAlpha = 0.5;
    pen.fillRect(left, 0, width, height);
    pen.globalAlpha = 1;
    for (const { part, column, low, high } of bars) {
      pen.fillStyle = colours.parts[part];
      const from = Math.floor(left + (column / COLUMNS) * width);
      pen.fillRect(from, height * (1 - high), Math.ceil(left + ((column + 1) / COLUMNS) * width) - from, height * (high - low));
    }
  }

  #windowText(low, high) {
    return `${this.#time(low)} to ${this.#time(high)} of ${this.#time(this.outline.total)}`;
  }

  /** What is visible, for those who do not see it: the shares of each lane in the window. */
  #words() {
    const { low, high } = this.range;
    this.chart.describe(`Timeline of ${this.outline.lanes.length} lanes, ${this.#windowText(low, high)}${this.isTiles ? `, tiles ${Math.round(this.rows.low)} to ${Math.round(this.rows.high) - 1}` : ""}`);
    if (this.context.source.isFrozen) return;
    this.context.ask("timeline.window", { program: this.context.program, of: "lanes", from: Math.round(low), to: Math.max(Math.round(high), Math.round(low) + 1) }).then(({ head }) => {
      fill(this.seen, h("caption", {}, this.#windowText(low, high)), h("tr", {}, ["lane", ...this.outline.parts].map((t) => h("th", {}, t))),
        head.lanes.slice(0, 64).map((lane) => h("tr", {}, h("th", {}, lane.name), this.outline.parts.map((part) => h("td", {}, percent(lane.cycles[part] / (head.high - head.low || 1)))))));
    }, () => {});
  }

  #details(changed) {
    const { context } = this;
    if (changed.has("from") || changed.has("to")) {
      this.windowed.show(this.window, () => this.#zoomWindow(), () => context.state.set({ from: null, to: null }));
    }
    if (changed.has("step") || changed.has("timeline.at")) {
      const step = context.state.number("step");
      if (this.selected && this.selected.step !== step) this.selected = null;
      if (!Number.isFinite(step)) this.selected = null;
      if (!this.selected && Number.isFinite(step) && Number.isFinite(context.state.number("timeline.at"))) this.#again(step);
      this.step.show(step, this.selected);
    }
  }

  /** The execution that a link tells of. */
  async #again(step) {
    const { state } = this.context;
    const lane = state.number("timeline.lane", 0);
    try {
      const { head } = await this.context.ask("timeline.at", { program: this.context.program, lane, at: state.number("timeline.at") });
      if (head.step !== step || state.number("step") !== step) return;
      this.selected = { ...head, lane };
      this.step.show(step, this.selected);
      this.redraw();
    } catch {
      // The link tells of a place that this report does not have.
    }
  }

  update(changed) {
    const { state } = this.context;
    if (["timeline.view", "timeline.shape", "timeline.axis", "timeline.over", "theme"].some((n) => changed.has(n))) {
      this.make();
      this.#notes();
    }
    if (changed.has("timeline.low") || changed.has("timeline.high")) {
      const [low, high] = [state.number("timeline.low", 0), state.number("timeline.high", this.outline.total)];
      if (Math.abs(low - this.range.low) > 1 || Math.abs(high - this.range.high) > 1) this.range.set(low, high);
    }
    if (changed.has("timeline.tab")) this.tabs.show(state.get("timeline.tab", "run"));
    if (changed.has("unit") || changed.has("theme")) {
      this.run.show();
      this.#details(new Set(["from", "step"]));
    } else {
      this.#details(changed);
    }
    this.redraw();
  }

  destroy() {
    this.chart.destroy();
    this.brush.destroy();
    for (const part of [this.run, this.windowed, this.step]) part.destroy();
    this.search.destroy();
  }
}
