// The colours of numbers, how often each occurs, and two handles for the ends of the colours.

import { Chart } from "abele/core/chart.js";

/** Counts of numbers in equal parts of [low, high]; those beyond count at the ends. */
export function histogram(values, low, high, bins) {
  const found = new Uint32Array(bins);
  const scale = bins / Math.max(high - low, 1e-12);
  for (let i = 0; i < values.length; i += 1) found[Math.min(Math.max(Math.floor((values[i] - low) * scale), 0), bins - 1)] += 1;
  return found;
}

export class ColourScale {
  /**
   * @param {object} how
   * @param {(value: number) => string} how.words  a number in words
   * @param {() => void} how.changed  the colours mean other numbers now
   * @param {(ends: {low: number|null, high: number|null}) => void} how.settled  somebody let go of a handle; null for the least and the greatest
   */
  constructor({ words, changed, settled }) {
    Object.assign(this, { words, changed, settled, values: [], least: 0, most: 1, low: null, high: null, turn: 0 });
    this.chart = new Chart({ label: "Colours", name: "colours", height: 42, draw: (context, place) => this.#draw(context, place) });
    this.element = this.chart.element;
    this.element.classList.add("colour-scale");
    this.chart.canvas.setAttribute("role", "slider");
    this.#handles();
  }

  destroy() {
    this.chart.destroy();
  }

  redraw() {
    this.chart.redraw();
  }

  /** Show these numbers; colours span from the least to the most unless the handles say otherwise. */
  show(values, least, most) {
    Object.assign(this, { values, least, most });
    this.turn += 1;
    this.chart.redraw();
  }

  /** Let the colours span from low to high; null, or what is no number, for the least and the greatest one. */
  span(low, high) {
    const end = (value) => (Number.isFinite(value) ? value : null);
    const [least, most] = [end(low), end(high)];
    if (least === this.low && most === this.high) return;
    [this.low, this.high] = [least, most];
    this.turn += 1;
    this.changed();
  }

  /** The numbers at the ends of the colours. */
  get ends() {
    return [this.low ?? this.least, this.high ?? this.most];
  }

  /** The colours with how many tiles have them, and the handles of their ends. */
  #draw(context, { width, height, theme }) {
    const bar = { left: 8, width: Math.max(1, width - 16), top: height - 24, height: 8 };
    const [low, high] = this.ends;
    const x = (value) => bar.left + ((value - this.least) / (this.most - this.least)) * bar.width;
    const bins = Math.max(1, Math.min(256, Math.floor(bar.width / 3)));
    if (this.bins?.version !== this.turn || this.bins.found.length !== bins) {
      const found = histogram(this.values, this.least, this.most, bins);
      this.bins = { version: this.turn, found, greatest: found.reduce((a, b) => Math.max(a, b), 1) };
    }
    const wide = bar.width / bins;
    for (let i = 0; i < bins; i += 1) {
      const value = this.least + ((i + 0.5) / bins) * (this.most - this.least);
      context.fillStyle = theme.heat[Math.min(Math.max(Math.round(((value - low) / Math.max(high - low, 1e-12)) * 255), 0), 255)];
      context.fillRect(bar.left + i * wide, bar.top, wide + 0.5, bar.height);
      const tall = this.bins.found[i] ? Math.max(1, Math.sqrt(this.bins.found[i] / this.bins.greatest) * (bar.top - 2)) : 0;
      context.fillStyle = theme.dim;
      context.fillRect(bar.left + i * wide, bar.top - tall - 1, Math.max(1, wide - 1), tall);
    }
    context.font = theme.font;
    context.textBaseline = "top";
    for (const [value, align] of [[low, "left"], [high, "right"]]) {
      context.fillStyle = theme.accent;
      context.fillRect(x(value) - 2.5, bar.top - 3, 5, bar.height + 6);
      context.fillStyle = theme.dim;
      context.textAlign = align;
      const text = this.words(value);
      const room = context.measureText(text).width;
      const at = align === "left" ? Math.min(x(value) - 2, bar.left + bar.width - room) : Math.max(x(value) + 2, bar.left + room);
      context.fillText(text, at, bar.top + bar.height + 3);
    }
    this.chart.describe(`Colours from ${this.words(low)} to ${this.words(high)}`);
  }

  #handles() {
    const { canvas } = this.chart;
    let held = null;
    const value = (event) => {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      return this.least + (Math.min(Math.max((x - 8) / Math.max(1, this.chart.width - 16), 0), 1)) * (this.most - this.least);
    };
    canvas.addEventListener("pointerdown", (event) => {
      const [low, high] = this.ends;
      const now = value(event);
      held = Math.abs(now - low) < Math.abs(now - high) ? "low" : "high";
      canvas.setPointerCapture(event.pointerId);
      this.#moved(held, now);
    });
    canvas.addEventListener("pointermove", (event) => held && this.#moved(held, value(event)));
    const end = () => {
      if (held) this.settled({ low: this.low, high: this.high });
      held = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", () => {
      this.span(null, null);
      this.settled({ low: null, high: null });
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (!step) return;
      const end = event.shiftKey ? "low" : "high";
      this.#moved(end, (end === "low" ? this.ends[0] : this.ends[1]) + step * (this.most - this.least));
      this.settled({ low: this.low, high: this.high });
      event.preventDefault();
      event.stopPropagation();
    });
  }

  #moved(end, value) {
    const [low, high] = this.ends;
    const fine = (this.most - this.least) / 500;
    if (end === "low") this.span(Math.max(this.least, Math.min(value, high - fine)), this.high);
    else this.span(this.low, Math.min(this.most, Math.max(value, low + fine)));
  }
}
