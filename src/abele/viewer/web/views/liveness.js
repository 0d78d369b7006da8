// What is live at which step: the curve, lifetimes below it, the floor plan at a step, and what lives at chosen steps.

import { fill, h, settled } from "abele/core/dom.js";
import { bytes, count, percent } from "abele/core/format.js";
import { dropdown, empty, failure, legend, split, tabs, toggle } from "abele/core/parts.js";
import { Range } from "abele/core/range.js";
import { NOTHING, renewed } from "abele/core/renewed.js";
import { Stacked } from "abele/core/stacked.js";
import { theme } from "abele/core/theme.js";
import { Lifetimes } from "abele/views/liveness/lifetimes.js";
import { alwaysLive, groupsNow, touched, variablesNow } from "abele/views/liveness/now.js";
import { Player } from "abele/views/liveness/player.js";
import { knownStep, stepTab } from "abele/views/liveness/step.js";
import { Chosen, tilesInput } from "abele/views/memory/chosen.js";
import { liveColour, titleOf } from "abele/views/memory/colours.js";
import { verticesTab } from "abele/views/memory/vertices.js";

const BY = [["none", "nothing"], ["type", "data type"], ["scope", "scope"], ["role", "role"]];
const MOST_STEPS = 4;
const REST = 150;

export const mount = (context, place) => renewed(context, place, ofReport);

async function ofReport(context, place) {
  if (!context.facts.rows.liveness) {
    fill(place, empty("This report says nothing about what is live when.", "Reports of compiled programs that have a step do."));
    return NOTHING;
  }
  const view = new LivenessView(context, place);
  await view.start();
  return view;
}

class LivenessView {
  constructor(context, place) {
    Object.assign(this, { context, place });
    this.chosen = new Chosen(context);
    this.parts = [];
    this.charts = [];
    this.commands = [
      { title: "Show the step on the timeline", run: () => context.go("timeline", { step: this.steps[0] }) },
      { title: "Show the step in the program", run: () => context.go("program", { step: this.steps[0] }) },
      { title: "Next step", key: ".", run: () => this.player.step(1) },
      { title: "Step before", key: ",", run: () => this.player.step(-1) },
      { title: "Next step (arrow)", key: "ArrowRight", run: () => this.player.step(1) },
      { title: "Step before (arrow)", key: "ArrowLeft", run: () => this.player.step(-1) },
      { title: "To the peak", key: "p", run: () => this.#peak(0) },
      { title: "To the next lower peak", key: "n", run: () => this.#nextPeak() },
      { title: "Play through steps", key: " ", run: () => this.player.toggle() },
    ];
  }

  /** Source and tiles of the curve, as questions take them. */
  #of() {
    const { state } = this.context;
    const source = state.get("liveness.source", "chip");
    return { source, ...(source === "tiles" ? { tiles: state.get("tiles") } : {}) };
  }

  #params() {
    const { state } = this.context;
    return { ...this.#of(), by: state.get("liveness.by", "none"), base: state.get("liveness.base", "1") };
  }

  /** The selected steps; the peak where none is. */
  get steps() {
    const { state } = this.context;
    const first = state.number("step");
    const more = state.get("liveness.steps").split(",").filter(Boolean).map(Number).filter(Number.isFinite);
    const chosen = Number.isFinite(first) ? [first] : [this.stepAt(this.stacked.head?.peaks[0] ?? 0)];
    const known = [...new Set([...chosen, ...more])].filter((step) => step >= 0 && step < this.context.facts.rows.steps);
    return known.length ? known.slice(0, MOST_STEPS) : [this.stepAt(0)];
  }

  stepAt(place) {
    return this.stepOf[Math.min(Math.max(place, 0), this.stepOf.length - 1)];
  }

  /** The place of a step on the curve: of the next step that has one. */
  placeOf(step) {
    let [low, high] = [0, this.stepOf.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stepOf[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  async start() {
    const { context } = this;
    const { state } = context;
    const [floor, steps] = await Promise.all([context.ask("floor"), context.ask("liveness.steps")]);
    this.floor = floor;
    this.stepOf = steps.arrays.step;
    await this.chosen.read().catch(() => {});
    this.range = new Range(0, this.stepOf.length, Math.min(8, this.stepOf.length));
    this.stacked = new Stacked({
      label: "Bytes live by step", name: "liveness", range: this.range, length: () => this.stepOf.length,
      ask: (at) => context.ask("liveness.curve", { ...this.#params(), ...at }),
      known: (at) => context.known("liveness.curve", { ...this.#params(), ...at }),
      has: (at) => context.source.has(context.report, "liveness.curve", { ...this.#params(), ...at }),
      colour: liveColour,
      unit: () => state.get("unit", "auto"),
      axis: (place) => count(this.stepAt(place)),
      lines: () => this.#lines(),
      cursors: () => this.#cursors(),
      pick: (bucket, event) => this.#picked(bucket.place, event),
      select: (low, high, done) => done && this.#both(Math.floor(low), Math.floor(high)),
      tell: (bucket) => this.#tell(bucket),
      loaded: (head) => this.#loaded(head),
    });
    this.lifetimes = new Lifetimes(context, { range: this.range, params: () => this.#of(), length: () => this.stepOf.length, cursors: () => this.#cursors(), stepAt: (place) => this.stepAt(place) });
    this.player = new Player(context, {
      floor, place: () => this.placeOf(this.steps[0]), stepAt: (place) => this.stepAt(place), length: () => this.stepOf.length,
      go: (place) => this.#go(place), stopped: () => this.#tables(), select: (tiles) => state.set({ tiles: tiles || null }),
    });
    this.charts = [this.stacked.chart, this.lifetimes.chart, this.player.plan.chart];
    this.#build();
    context.keys.steer(this.range);
    const [from, to] = [state.number("liveness.from"), state.number("liveness.to")];
    await this.stacked.ready;
    if (Number.isFinite(from) && Number.isFinite(to)) this.range.set(from, to);
    this.range.addEventListener("change", settled(() => this.#remember(), REST));
    this.lifetimes.load();
    this.player.plan.mark(this.chosen.marks);
    this.begun = true;
    this.#step();
  }

  #build() {
    const { context, stacked } = this;
    const { state } = context;
    const set = (name, otherwise) => (value) => state.set({ [name]: value === otherwise ? null : value });
    const ipus = this.floor.head.num_ipus > 1 ? Array.from({ length: this.floor.head.num_ipus }, (_, i) => [`ipu:${i}`, `IPU ${i}`]) : [];
    const sources = [["chip", ipus.length ? "all IPUs" : "whole chip"], ["fullest", `the fullest tile, ${context.facts.fullest_tile}`], ["most", "at each step the tile with most"], ["tiles", "selected tiles"], ...ipus];
    this.input = tilesInput(context, this.chosen);
    this.sources = dropdown("Bytes of", sources, state.get("liveness.source", "chip"), set("liveness.source", "chip"));
    this.divide = dropdown("Divide by", BY, state.get("liveness.by", "none"), set("liveness.by", "none"));
    this.baseBox = toggle("always live", state.get("liveness.base", "1") === "1", (on) => state.set({ "liveness.base": on ? null : "0" }));
    this.said = h("div.step-line", { role: "status" });
    this.legend = h("div.legend-row");
    this.lost = h("div");
    stacked.failed = (error) => fill(this.lost, failure(error));
    const more = { steps: () => this.steps, params: () => this.#of() };
    const entries = [
      ["now", "live at the step", () => this.#tab(variablesNow(context, more))],
      ["groups", "by line, operation …", () => this.#tab(groupsNow(context, more))],
      ["always", "always live", () => this.#tab(alwaysLive(context, more))],
      ["vertices", "vertices", () => this.#tab(verticesTab(context, () => ({ step: this.steps[0] }), "Codelets of the vertices that the step runs."))],
      ["touched", "read and written", () => this.#tab(touched(context, more))],
      ["step", "cycles of the step", () => this.#tab(stepTab(context, more))],
    ];
    const bar = h("div.bar", {},
      h("label.toggle", {}, "bytes of ", this.sources), h("label.toggle", {}, "by ", this.divide),
      this.baseBox, h("span.grow"), this.input.element);
    const curve = h("div.curve", {}, stacked.brush.element, stacked.chart.element, this.legend, this.lifetimes.chart.element);
    const upper = h("section.panel.fill", { "aria-label": "Bytes live by step" }, bar, this.lost, this.said, h("div.memory-upper", {}, curve, this.player.element));
    const lower = h("section.panel.fill", { "aria-label": "Of the selected steps" }, tabs("Of the selected steps", entries, state.get("liveness.tab", "now"), (name) => state.set({ "liveness.tab": name })));
    fill(this.place, split(upper, lower, state.number("liveness.split", 0.62), (part) => state.set({ "liveness.split": part.toFixed(3) })));
    this.input.show();
  }

  #tab(part) {
    this.parts.push(part);
    if (this.begun) part.update();
    return part.element;
  }

  #loaded(head) {
    fill(this.lost);
    const colours = theme();
    fill(this.legend, legend(head.parts.map((name, i) => [liveColour(name, i, colours), titleOf(name)])),
      h("span.dim", {}, "peaks ", head.peaks.slice(0, 5).map((place, i) => [i ? " " : "", h("button.link", { onclick: () => this.#peak(i) }, count(this.stepAt(place)))])));
    const unit = this.context.state.get("unit", "auto");
    this.stacked.chart.describe(`Bytes live by step, ${count(head.length)} steps. The peak is ${bytes(head.greatest, unit)} at step ${count(this.stepAt(head.peaks[0] ?? 0))}.`);
  }

  #lines() {
    const { head } = this.stacked;
    if (!head?.available || head.greatest < 0.4 * head.available) return [];
    return [{ value: head.available, title: `what there is: ${bytes(head.available, this.context.state.get("unit", "auto"))}` }];
  }

  #cursors() {
    const colours = theme();
    const shades = [colours.accent, colours.series[1], colours.series[2], colours.series[3]];
    return this.steps.map((step, i) => ({ place: this.placeOf(step), title: count(step), colour: shades[i] }));
  }

  #tell(bucket) {
    const unit = this.context.state.get("unit", "auto");
    const step = this.stepAt(bucket.place);
    const row = knownStep(this.context, step);
    const lines = [`step ${count(step)}${bucket.size > 1 ? `: the highest of ${count(bucket.size)}` : ""}`];
    if (row) lines.push(`${row.name || "(no name)"} · ${row.kind}`);
    bucket.names.forEach((name, i) => bucket.values[i] > 0 && lines.push([titleOf(name), bytes(bucket.values[i], unit)]));
    lines.push(["together", bytes(bucket.total, unit)]);
    if (this.stacked.head.available) lines.push(["of what there is", percent(bucket.total / this.stacked.head.available)]);
    return lines;
  }

  #go(place) {
    const step = this.stepAt(place);
    this.context.state.set({ step });
    if (place < this.range.low || place >= this.range.high) this.range.set(place - this.range.span / 2, place + this.range.span / 2);
  }

  #picked(place, event) {
    const step = this.stepAt(place);
    if (!event.shiftKey && !event.ctrlKey && !event.metaKey) {
      this.context.state.set({ step, "liveness.steps": null });
      return;
    }
    const others = this.steps.filter((each) => each !== step);
    const now = this.steps.includes(step) && others.length ? others : [...others, step].slice(0, MOST_STEPS);
    this.context.state.set({ step: now[0], "liveness.steps": now.slice(1).join(",") || null });
  }

  /** Compare the steps at both ends of what was dragged over. */
  #both(low, high) {
    this.context.state.set({ step: this.stepAt(low), "liveness.steps": high > low ? this.stepAt(high) : null });
  }

  #peak(number) {
    const { peaks } = this.stacked.head ?? { peaks: [] };
    if (peaks.length) this.#go(peaks[Math.min(number, peaks.length - 1)]);
  }

  #nextPeak() {
    const { peaks } = this.stacked.head ?? { peaks: [] };
    if (peaks.length) this.#peak((peaks.indexOf(this.placeOf(this.steps[0])) + 1) % peaks.length);
  }

  #remember() {
    if (!this.place.isConnected) return;
    const whole = this.range.low === this.range.least && this.range.high === this.range.most;
    this.context.state.set({ "liveness.from": whole ? null : this.range.low.toFixed(2), "liveness.to": whole ? null : this.range.high.toFixed(2) });
  }

  /** The selected step changed. */
  #step() {
    this.stacked.redraw();
    this.lifetimes.chart.redraw();
    this.player.show();
    this.#say();
    if (!this.player.playing) this.#tables();
  }

  #tables() {
    for (const part of this.parts) part.update();
  }

  async #say() {
    const [step] = this.steps;
    const bucket = this.stacked.bucket(this.placeOf(step));
    const row = knownStep(this.context, step);
    const unit = this.context.state.get("unit", "auto");
    const exact = bucket && bucket.place === this.placeOf(step);
    fill(this.said, h("b", {}, `step ${count(step)}`), row ? h("span.step-name", { title: row.name }, row.name || "(no name)") : "", row ? h("span.dim", {}, [row.kind, ...(this.context.facts.programs.length > 1 ? [this.context.facts.programs[row.program]] : [])].join(" · ")) : "",
      exact ? h("span", {}, `${bytes(bucket.total, unit)} live`) : "", bucket && this.stacked.head.greatest && exact ? h("span.dim", {}, `${percent(bucket.total / this.stacked.head.greatest)} of the peak`) : "",
      h("span.grow"),
      h("button.small", { onclick: () => this.#peak(0), title: "p" }, "peak"),
      h("button.small", { onclick: () => this.context.go("timeline", { step }) }, "timeline"),
      h("button.small", { onclick: () => this.context.go("program", { step }) }, "program"));
    if (!row && !this.naming) {
      this.naming = true;
      setTimeout(() => {
        this.naming = false;
        if (this.stacked.chart.element.isConnected && knownStep(this.context, this.steps[0])) this.#say();
      }, 120);
    }
  }

  update(changed) {
    const touches = (...wanted) => wanted.some((name) => changed.has(name));
    const source = this.context.state.get("liveness.source", "chip");
    if (touches("tiles")) {
      this.chosen.read().then(() => {
        this.input.show();
        this.player.plan.mark(this.chosen.marks);
      }, (error) => fill(this.lost, failure(error)));
    }
    if (touches("liveness.source", "liveness.by", "liveness.base") || (source === "tiles" && touches("tiles"))) {
      this.sources.value = source;
      this.divide.value = this.context.state.get("liveness.by", "none");
      this.baseBox.querySelector("input").checked = this.context.state.get("liveness.base", "1") === "1";
      this.stacked.reset().then(() => this.#step());
      this.lifetimes.load();
      this.#tables();
    }
    if (touches("step", "liveness.steps")) this.#step();
    if (touches("liveness.low", "liveness.high")) this.player.show();
    if (touches("variable")) {
      this.lifetimes.chart.redraw();
      this.#tables();
    }
    if (touches("liveness.group")) this.#tables();
    if (touches("liveness.from", "liveness.to")) {
      const [from, to] = [this.context.state.number("liveness.from", this.range.least), this.context.state.number("liveness.to", this.range.most)];
      if (Math.abs(from - this.range.low) > 0.01 || Math.abs(to - this.range.high) > 0.01) this.range.set(from, to);
    }
    if (touches("unit", "theme")) {
      if (this.stacked.head) this.#loaded(this.stacked.head);
      this.#step();
      this.player.plan.redraw();
    }
  }

  destroy() {
    this.player.destroy();
    this.stacked.destroy();
    this.lifetimes.destroy();
    for (const part of this.parts) part.destroy();
  }
}
