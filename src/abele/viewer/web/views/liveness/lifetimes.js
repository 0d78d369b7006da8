// Lifetimes of variables as bars below the curve: largest first, those that live in the window.

import { Chart } from "abele/core/chart.js";
import { settled } from "abele/core/dom.js";
import { bytes, count, fitted } from "abele/core/format.js";
import { steer } from "abele/core/range.js";
import { MARGIN } from "abele/core/stacked.js";
import { tips } from "abele/core/tip.js";

const ROW = 13;
const WAIT = 40;

/** A window of places that is asked for: its ends on a grid of a quarter of its length, so that answers are found again. */
export function snapped(low, high, length) {
  const span = Math.max(high - low, 1);
  const size = 2 ** Math.max(0, Math.ceil(Math.log2(span / 4)));
  if (span >= length) return [0, length];
  return [Math.max(0, Math.floor(low / size) * size), Math.min(length, Math.ceil(high / size) * size)];
}

export class Lifetimes {
  /**
   * @param {any} context
   * @param {object} how
   * @param {import("abele/core/range.js").Range} how.range
   * @param {() => Object<string, any>} how.params  source and tiles
   * @param {() => number} how.length  places of the axis
   * @param {() => Array<{place: number}>} how.cursors
   * @param {(place: number) => number} how.stepAt
   */
  constructor(context, { range, params, length, cursors, stepAt }) {
    Object.assign(this, { context, range, params, length, cursors, stepAt });
    this.answer = null;
    this.scroll = 0;
    this.chart = new Chart({ label: "Lifetimes of variables", name: "lifetimes", draw: (pen, place) => this.#draw(pen, place) });
    this.chart.element.classList.add("lifetimes");
    this.look = settled(() => this.load(), WAIT);
    this.onChange = () => {
      this.chart.redraw();
      this.look();
    };
    range.addEventListener("change", this.onChange);
    const { canvas } = this.chart;
    steer(canvas, range, () => ({ left: MARGIN.left, width: this.#width() }), {
      across: (pixels) => this.#scrolled(pixels),
      click: (event) => {
        const bar = this.#at(event);
        if (bar) context.state.set({ variable: bar.row });
      },
    });
    tips(canvas, (event) => {
      const bar = this.#at(event);
      if (!bar) return null;
      const unit = context.state.get("unit", "auto");
      return [bar.name || "(no name)", ["bytes here", bytes(bar.bytes, unit)], ["lives", bar.spans.slice(0, 6).map(([a, b]) => (this.stepAt(a) === this.stepAt(b) ? `step ${count(this.stepAt(a))}` : `steps ${count(this.stepAt(a))} to ${count(this.stepAt(b))}`)).join(", ")]];
    });
  }

  destroy() {
    this.range.removeEventListener("change", this.onChange);
    this.chart.destroy();
  }

  async load() {
    const length = this.length();
    if (!length) return;
    const [first, last] = snapped(this.range.low, this.range.high, length);
    const asked = { ...this.params(), first, last };
    const key = JSON.stringify(asked);
    if (this.asked === key) return;
    this.asked = key;
    let answer;
    try {
      answer = await this.context.ask("liveness.lifetimes", asked);
    } catch {
      // A static page has the whole axis alone.
      if (first > 0 || last < length) answer = await this.context.ask("liveness.lifetimes", { ...this.params(), first: 0, last: length }).catch(() => null);
    }
    if (!answer || this.asked !== key) return;
    this.#taken(answer);
  }

  #taken({ head, arrays }) {
    this.bars = head.name.map((name, i) => ({ name, row: arrays.row[i], bytes: arrays.bytes[i], spans: [] }));
    arrays.of.forEach((of, i) => this.bars[of].spans.push([arrays.first[i], arrays.last[i]]));
    this.found = head.found;
    this.#scrolled(0);
    this.chart.describe(`Lifetimes of the ${count(this.bars.length)} largest of ${count(head.found)} variables that live in the window: ${this.bars.slice(0, 5).map((b) => b.name).join(", ")}`);
    this.chart.redraw();
  }

  #width() {
    return Math.max(1, this.chart.width - MARGIN.left - MARGIN.right);
  }

  #scrolled(pixels) {
    const most = Math.max(0, (this.bars?.length ?? 0) * ROW + 4 - this.chart.height);
    this.scroll = Math.min(Math.max(this.scroll + pixels, 0), most);
    this.chart.redraw();
  }

  #at(event) {
    const box = this.chart.canvas.getBoundingClientRect();
    return this.bars?.[Math.floor((event.clientY - box.top + this.scroll) / ROW)] ?? null;
  }

  #draw(pen, { width, height, theme }) {
    const bars = this.bars ?? [];
    const plot = { left: MARGIN.left, width: Math.max(1, width - MARGIN.left - MARGIN.right) };
    const x = (place) => plot.left + this.range.pixel(place, plot.width);
    const chosen = this.context.state.number("variable");
    const unit = this.context.state.get("unit", "auto");
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const first = Math.floor(this.scroll / ROW);
    const last = Math.min(bars.length, Math.ceil((this.scroll + height) / ROW));
    pen.save();
    pen.beginPath();
    pen.rect(plot.left, 0, plot.width, height);
    pen.clip();
    for (let i = first; i < last; i += 1) {
      const bar = bars[i];
      const top = i * ROW - this.scroll;
      const on = bar.row === chosen;
      let [from, to] = [Infinity, -Infinity];
      for (const [a, b] of bar.spans) {
        const left = Math.max(x(a), plot.left - 2);
        const right = Math.min(x(b + 1), plot.left + plot.width + 2);
        if (right < plot.left || left > plot.left + plot.width) continue;
        pen.globalAlpha = on ? 1 : 0.55;
        pen.fillStyle = on ? theme.accent : theme.series[0];
        pen.fillRect(left, top + 1.5, Math.max(1, right - left), ROW - 3);
        [from, to] = [Math.min(from, left), Math.max(to, right)];
      }
      pen.globalAlpha = 1;
      if (to < from) continue;
      const inside = Math.max(from, plot.left) + 4;
      const beside = to + 4;
      bar.width ??= pen.measureText(bar.name).width;
      const whole = bar.width;
      const cut = (room) => (whole <= room ? bar.name : fitted(pen, bar.name, room));
      const ends = plot.left + plot.width;
      const [text, at] = to - inside > Math.min(whole, 150) ? [cut(to - inside - 4), inside]
        : ends - beside > 60 ? [cut(ends - beside), beside] : [cut(from - plot.left - 6), null];
      const wide = text === bar.name ? whole : pen.measureText(text).width;
      const left = at ?? from - 4 - wide;
      // Bars with pauses between them: what lies under the name steps back.
      if (bar.spans.length > 1) {
        pen.globalAlpha = 0.75;
        pen.fillStyle = theme.panel;
        pen.fillRect(left - 2, top + 1.5, wide + 4, ROW - 3);
        pen.globalAlpha = 1;
      }
      pen.fillStyle = theme.ink;
      pen.textAlign = "left";
      pen.fillText(text, left, top + ROW / 2);
    }
    for (const { place, colour } of this.cursors()) {
      pen.fillStyle = colour ?? theme.ink;
      pen.fillRect(x(place + 0.5) - 0.75, 0, 1.5, height);
    }
    pen.restore();
    pen.fillStyle = theme.dim;
    pen.textAlign = "right";
    for (let i = first; i < last; i += 1) pen.fillText(bytes(bars[i].bytes, unit), plot.left - 6, i * ROW - this.scroll + ROW / 2);
    const most = bars.length * ROW;
    if (most > height) {
      pen.fillStyle = theme.rule;
      pen.fillRect(width - 6, 0, 4, height);
      pen.fillStyle = theme.dim;
      pen.fillRect(width - 6, (this.scroll / most) * height, 4, Math.max(12, (height / most) * height));
    }
    if (!bars.length && this.bars) {
      pen.textAlign = "left";
      pen.fillText("No variable comes and goes here.", plot.left + 6, 12);
    }
  }
}
