// The floor plan at a step, and playing through steps.

import { h } from "abele/core/dom.js";
import { bytes } from "abele/core/format.js";
import { FloorPlan } from "abele/core/floorplan.js";
import { dropdown } from "abele/core/parts.js";

const AHEAD = 6;
const SPEEDS = [["2", "2 steps/s"], ["5", "5 steps/s"], ["15", "15 steps/s"], ["60", "60 steps/s"], ["300", "300 steps/s"], ["2000", "2,000 steps/s"]];
const PICTURES_A_SECOND = 15;

/** Steps that are passed over between two pictures, so that a speed is kept. */
export const stride = (speed) => Math.max(1, Math.round(speed / PICTURES_A_SECOND));

export class Player {
  /**
   * @param {any} context
   * @param {object} how
   * @param {any} how.floor  the answer to the question "floor"
   * @param {() => number} how.place  of the selected step on the curve
   * @param {(place: number) => number} how.stepAt
   * @param {() => number} how.length
   * @param {(place: number) => void} how.go  select the step at a place
   * @param {() => void} how.stopped
   * @param {(tiles: string) => void} how.select
   */
  constructor(context, how) {
    Object.assign(this, { context }, how);
    this.playing = false;
    this.shown = null;
    this.wanted = null;
    const unit = () => context.state.get("unit", "auto");
    this.plan = new FloorPlan({
      label: "Memory on the floor plan at the step", name: "liveness-floor", floor: how.floor, select: how.select,
      words: (value) => bytes(value, unit()),
      tell: (tile) => [`tile ${tile}`, ["at this step", bytes(this.plan.values[tile] ?? NaN, unit())]],
      scaled: ({ low, high }) => context.state.set({ "liveness.low": low === null ? null : Math.round(low), "liveness.high": high === null ? null : Math.round(high) }),
    });
    this.button = h("button.small.play", { onclick: () => this.toggle(), title: "Play through the steps (space)", "aria-label": "Play" }, "▶");
    this.speed = () => Number(context.state.get("liveness.speed", "5")) || 5;
    this.element = h("aside.side", { "aria-label": "Floor plan at the step" },
      h("div.bar", {}, h("button.small", { onclick: () => this.step(-1), title: "Step before (,)", "aria-label": "Step before" }, "◀"), this.button,
        h("button.small", { onclick: () => this.step(1), title: "Next step (.)", "aria-label": "Next step" }, "▶|"),
        dropdown("Speed", SPEEDS, context.state.get("liveness.speed", "5"), (speed) => context.state.set({ "liveness.speed": speed === "5" ? null : speed })),
        h("button.small", { title: "Show all of the floor plan", onclick: () => this.plan.whole() }, "all")),
      this.plan.element);
  }

  destroy() {
    this.playing = false;
    clearTimeout(this.timer);
    this.plan.destroy();
  }

  step(by) {
    const next = Math.min(Math.max(this.place() + by, 0), this.length() - 1);
    this.go(next);
  }

  toggle() {
    this.playing = !this.playing;
    this.button.textContent = this.playing ? "❚❚" : "▶";
    this.button.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    if (!this.playing) {
      clearTimeout(this.timer);
      this.stopped();
      return;
    }
    if (this.place() >= this.length() - 1) this.go(0);
    this.due = performance.now();
    this.#tick();
  }

  #tick() {
    if (!this.playing) return;
    const speed = this.speed();
    const by = stride(speed);
    const next = this.place() + by;
    if (next >= this.length()) {
      this.go(this.length() - 1);
      this.toggle();
      return;
    }
    for (let i = 0; i < AHEAD; i += 1) if (next + i * by < this.length()) this.#ask(next + i * by).catch(() => {});
    const now = performance.now();
    this.#ask(next).then(() => {
      if (!this.playing) return;
      this.due = Math.max(this.due + (1000 * by) / speed, now);
      this.timer = setTimeout(() => {
        if (!this.playing) return;
        this.go(next);
        this.#tick();
      }, Math.max(0, this.due - performance.now()));
    }, () => this.playing && this.toggle());
  }

  #ask(place) {
    return this.context.ask("liveness.floor", { step: this.stepAt(place) });
  }

  /** Show the floor plan at the selected step. */
  async show() {
    const step = this.stepAt(this.place());
    if (step === undefined) return;
    const known = this.context.known("liveness.floor", { step });
    this.wanted = step;
    const answer = known ?? await this.context.ask("liveness.floor", { step }).catch(() => null);
    if (!answer || this.wanted !== step) return;
    const { head, arrays } = answer;
    const values = new Float64Array(arrays.values.length);
    for (let i = 0; i < values.length; i += 1) values[i] = arrays.values[i] * head.unit;
    this.plan.scale.span(this.context.state.number("liveness.low"), this.context.state.number("liveness.high"));
    // The same colours at every step: up to what the fullest tile ever holds.
    this.most = Math.max(this.most ?? 0, this.context.facts.most_bytes ?? 0, head.greatest);
    this.plan.show(values, { least: 0, most: this.most });
    this.shown = step;
    this.plan.chart.describe(`Memory on the floor plan at step ${step}: the fullest tile is ${head.fullest} with ${bytes(head.greatest, this.context.state.get("unit", "auto"))}`);
  }
}
