// What one tile holds and does: its steps downwards, its variables as bars from where they begin to live to where they end,
// with dots where a step reads or writes them.

import { Chart } from "abele/core/chart.js";
import { facts, lastScopes, link, listing, part } from "abele/core/detail.js";
import { fill, h, settled } from "abele/core/dom.js";
import { bytes, count, fitted, ranges, short } from "abele/core/format.js";
import { empty, failure } from "abele/core/parts.js";
import { Plane, grab } from "abele/core/plane.js";
import { hideTip, tip } from "abele/core/tip.js";

const ROW = 18;
const STEPS = 300;
const LANE = 12;
const HEAD = 18;
const PARTS = ["compute", "arrange", "exchange", "replicas", "sync", "host", "memory"];

/**
 * A lane for each bar, so that none lies on another: the first one that is free.
 * @param {ArrayLike<number>} first @param {ArrayLike<number>} last @param {number[]} order
 * @returns {{lane: Int32Array, lanes: number}}
 */
export function packed(first, last, order) {
  const lane = new Int32Array(first.length).fill(-1);
  const ends = [];
  for (const i of order) {
    let at = ends.findIndex((end) => end < first[i]);
    if (at < 0) at = ends.push(-1) - 1;
    ends[at] = last[i];
    lane[i] = at;
  }
  return { lane, lanes: ends.length };
}

export class TileGraph {
  constructor(context, details) {
    Object.assign(this, { context, details, data: null, chosen: null, asked: 0 });
    const { state } = context;
    this.chart = new Chart({ label: "What one tile holds and does", name: "tile-graph", draw: (c, p) => this.#draw(c, p) });
    this.chart.element.classList.add("fill");
    this.plane = new Plane(() => ({ width: this.width ?? 1, height: this.height ?? 1, boxWidth: this.chart.width, boxHeight: this.chart.height }));
    this.plane.addEventListener("change", () => this.chart.redraw());
    grab(this.chart.canvas, this.plane, { click: (event) => this.#click(event), scrolls: true });
    this.chart.canvas.addEventListener("pointermove", (event) => this.#hover(event));
    this.chart.canvas.addEventListener("pointerleave", hideTip);
    context.keys.steer({ zoom: (f) => this.plane.zoom(f), move: (p) => this.plane.set(this.plane.x, this.plane.y - p * this.chart.height * 0.5), whole: () => this.plane.set(0, 0, 1) });
    this.input = h("input", { type: "number", min: 0, "aria-label": "Tile", value: this.tile });
    this.input.addEventListener("input", settled(() => this.input.value !== "" && state.set({ tiles: String(Math.max(0, Math.floor(Number(this.input.value)))) }), 200));
    this.note = h("span.dim", { role: "status" });
    this.element = h("div.fill.lists", {}, h("div.bar", {}, h("label", {}, "tile ", this.input), this.note), this.chart.element);
    this.#load();
  }

  get tile() {
    return ranges(this.context.state.get("tiles"))?.[0]?.[0] ?? this.context.facts.fullest_tile ?? 0;
  }

  destroy() {
    this.chart.destroy();
  }

  update(changed) {
    if (changed.has("tiles") || changed.has("program") || changed.has("reports")) this.#load();
    else if (changed.has("step") || changed.has("variable") || changed.has("unit")) this.#tell();
    this.chart.redraw();
  }

  async #load() {
    this.asked += 1;
    const mine = this.asked;
    if (Number(this.input.value) !== this.tile) this.input.value = this.tile;
    try {
      const data = await this.context.ask("graph.tile", { tile: this.tile, program: this.context.program });
      if (mine !== this.asked) return;
      this.data = data;
      const { arrays, head } = data;
      const all = [...arrays.variable.keys()].filter((i) => arrays.last[i] >= arrays.first[i]);
      const lives = all.filter((i) => !arrays.always[i]).sort((a, b) => arrays.first[a] - arrays.first[b] || arrays.last[b] - arrays.last[a]);
      const always = all.filter((i) => arrays.always[i]);
      const { lane, lanes } = packed(arrays.first, arrays.last, lives);
      always.forEach((i, k) => { lane[i] = lanes + k; });
      this.lane = lane;
      this.lanes = lanes + always.length;
      this.width = STEPS + this.lanes * LANE + 20;
      this.height = HEAD + arrays.step.length * ROW + 10;
      this.note.textContent = `${count(arrays.step.length)} steps, ${count(all.length)} variables${head.steps_left_out ? `; ${count(head.steps_left_out)} later steps left out` : ""}${head.told ? "" : "; this report does not tell which step touches which"}`;
      this.chart.describe(`Tile ${this.tile}: ${arrays.step.length} steps and ${all.length} variables`);
      this.#tell();
      this.chart.redraw();
    } catch (error) {
      if (mine !== this.asked) return;
      this.data = null;
      this.chart.redraw();
      fill(this.details, failure(error));
    }
  }

  #under(event) {
    if (!this.data) return null;
    const [x, y] = this.plane.at(this.chart.canvas, event);
    const { arrays } = this.data;
    const row = Math.floor((y - HEAD) / ROW);
    if (row < 0 || row >= arrays.step.length) return null;
    if (x >= 0 && x < STEPS) return { step: row };
    const lane = Math.floor((x - STEPS) / LANE);
    for (let i = 0; i < arrays.variable.length; i += 1) {
      if (this.lane[i] === lane && arrays.first[i] <= row && row <= arrays.last[i]) return { variable: i, step: row };
    }
    return null;
  }

  #click(event) {
    const at = this.#under(event);
    const { arrays } = this.data ?? {};
    if (!at) this.context.state.set({ variable: null });
    else if (at.variable !== undefined) this.context.state.set({ variable: arrays.variable[at.variable] });
    else this.context.state.set({ step: arrays.step[at.step] });
  }

  #hover(event) {
    const at = event.buttons ? null : this.#under(event);
    if (!at) return hideTip();
    const { head, arrays } = this.data;
    const unit = this.context.state.get("unit", "auto");
    if (at.variable === undefined) return tip(event, [head.names[at.step], ["computes", `${count(arrays.compute[at.step])} cycles`], ["sends", bytes(arrays.sent[at.step], unit)], ["receives", bytes(arrays.received[at.step], unit)]]);
    const v = head.variables[at.variable];
    return tip(event, [v.name, ["type", `${v.type}${v.shape ? ` [${v.shape}]` : ""}`], ["on this tile", bytes(arrays.bytes[at.variable], unit)], ["lives", arrays.always[at.variable] ? "always" : `${head.names[arrays.first[at.variable]]} to ${head.names[arrays.last[at.variable]]}`]]);
  }

  #tell() {
    if (!this.data) return;
    const { head, arrays } = this.data;
    const { state } = this.context;
    const unit = state.get("unit", "auto");
    const at = arrays.step.indexOf(state.number("step"));
    const chosen = arrays.variable.indexOf(state.number("variable"));
    const touched = [];
    for (let k = 0; k < arrays.at.length; k += 1) if (arrays.at[k] === at) touched.push(k);
    const uses = [];
    for (let k = 0; k < arrays.of.length; k += 1) if (arrays.of[k] === chosen) uses.push(k);
    const how = (k) => [arrays.reads[k] ? "reads" : "", arrays.writes[k] ? "writes" : ""].filter(Boolean).join(", ");
    const total = (name) => arrays[name].reduce((a, b) => a + b, 0);
    fill(this.details,
      part(`Tile ${this.tile}`, facts([["computes", `${short(total("compute"))} cycles, each step once`], ["sends", bytes(total("sent"), unit)], ["receives", bytes(total("received"), unit)], ["variables", `${count(arrays.variable.length)}, ${bytes(total("bytes"), unit)}`]]),
        h("div.links", {}, link(this.context, "memory of the tile", "memory", { tiles: this.tile }))),
      at >= 0 ? part(head.names[at], facts([["computes", `${count(arrays.compute[at])} cycles`], ["sends", bytes(arrays.sent[at], unit)], ["receives", bytes(arrays.received[at], unit)]]), link(this.context, "the step", "program", { step: arrays.step[at] }),
        touched.length ? listing("Variables on this tile", [["variable", (k) => head.variables[arrays.of[k]].name], ["", how]], touched) : null) : null,
      chosen >= 0 ? part(head.variables[chosen].name, facts([["type", head.variables[chosen].type], ["shape", head.variables[chosen].shape], ["on this tile", bytes(arrays.bytes[chosen], unit)]]), link(this.context, "the variable", "memory", { variable: arrays.variable[chosen] }),
        uses.length ? listing("Steps", [["step", (k) => head.names[arrays.at[k]]], ["", how]], uses) : null) : null,
      part("Largest variables", arrays.variable.length ? listing("Largest variables of the tile", [["variable", (i) => h("button.link", { onclick: () => state.set({ variable: arrays.variable[i] }), title: head.variables[i].name }, lastScopes(head.variables[i].name, 2))], ["bytes", (i) => bytes(arrays.bytes[i], unit), true], ["", (i) => (arrays.always[i] ? "always" : "")]], [...arrays.variable.keys()].slice(0, 30)) : empty("This tile holds no variables that the report tells of.")));
  }

  #draw(context, { width, height, theme: colours }) {
    if (!this.data) return;
    const { head, arrays } = this.data;
    const { x, y, scale } = this.plane;
    const { state } = this.context;
    context.save();
    context.translate(x, y);
    context.scale(scale, scale);
    const low = Math.max(0, Math.floor((-y / scale - HEAD) / ROW));
    const high = Math.min(arrays.step.length - 1, Math.ceil(((height - y) / scale - HEAD) / ROW));
    const right = (width - x) / scale;
    const step = state.number("step");
    const variable = state.number("variable");
    const most = arrays.compute.reduce((a, b) => Math.max(a, b), 1);
    context.font = "11px system-ui, sans-serif";
    for (let i = low; i <= high; i += 1) {
      const top = HEAD + i * ROW;
      if (arrays.step[i] === step) {
        context.fillStyle = colours.hover;
        context.fillRect(-x / scale, top, right + x / scale, ROW);
      }
      context.fillStyle = colours.parts[PARTS[arrays.part[i]]];
      context.fillRect(4, top + 3, 4, ROW - 6);
      const wide = 60 * (arrays.compute[i] / most);
      context.fillRect(STEPS - 66, top + 5, wide, ROW - 10);
      if (scale > 0.4) {
        context.fillStyle = colours.ink;
        context.fillText(fitted(context, head.names[i].slice(head.names[i].lastIndexOf("/", head.names[i].length - 20) + 1), STEPS - 84), 13, top + 13);
      }
    }
    for (let i = 0; i < arrays.variable.length; i += 1) {
      if (this.lane[i] < 0 || arrays.first[i] > high || arrays.last[i] < low) continue;
      const left = STEPS + this.lane[i] * LANE;
      if (left > right) continue;
      context.fillStyle = arrays.always[i] ? colours.series[0] : colours.series[2];
      context.globalAlpha = arrays.variable[i] === variable ? 1 : 0.4;
      const from = Math.max(arrays.first[i], low - 2);
      const to = Math.min(arrays.last[i], high + 2);
      context.fillRect(left + 2, HEAD + from * ROW + 2, LANE - 5, (to - from + 1) * ROW - 4);
    }
    context.globalAlpha = 1;
    for (let k = 0; k < arrays.at.length; k += 1) {
      if (arrays.at[k] < low || arrays.at[k] > high || this.lane[arrays.of[k]] < 0) continue;
      context.fillStyle = arrays.writes[k] ? colours.bad : colours.ink;
      const cx = STEPS + this.lane[arrays.of[k]] * LANE + LANE / 2 - 0.5;
      context.beginPath();
      context.arc(cx, HEAD + arrays.at[k] * ROW + ROW / 2, arrays.writes[k] ? 3.2 : 2.4, 0, 2 * Math.PI);
      context.fill();
    }
    context.restore();
    // Headings stay in sight.
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, width, HEAD - 2);
    context.fillStyle = colours.dim;
    context.font = "11px system-ui, sans-serif";
    context.fillText("steps in order", x + 6 * scale, 12);
    context.fillText("variables: temporary", x + (STEPS + 4) * scale, 12);
    context.fillStyle = colours.series[0];
    context.fillText("always live", x + (STEPS + 4) * scale + 130, 12);
    context.fillStyle = colours.ink;
    context.fillText("● read", x + (STEPS + 4) * scale + 210, 12);
    context.fillStyle = colours.bad;
    context.fillText("● written", x + (STEPS + 4) * scale + 260, 12);
  }
}
