// A strip chart: a bar per token, as high as its step took. Bar and token of the text point at each other.

import { Chart } from "abele/core/chart.js";
import * as format from "abele/core/format.js";
import { tips } from "abele/core/tip.js";

import { isModelled, perToken } from "chat/tokens.js";

const TOP = 16;

export class TokenStrip {
  /** @param {{chosen: (index: number|null) => void, lines: (index: number) => any[]}} how */
  constructor({ chosen, lines }) {
    this.pieces = [];
    this.index = null;
    this.chosen = chosen;
    this.chart = new Chart({ label: "time of each token", height: 96, draw: (context, place) => this.#draw(context, place) });
    this.element = this.chart.element;
    tips(this.chart.canvas, (event) => {
      const index = this.#at(event);
      this.point(index);
      this.chosen(index);
      return index === null ? null : lines(index);
    });
    this.chart.canvas.addEventListener("pointerleave", () => this.#leave());
    this.chart.canvas.addEventListener("blur", () => this.#leave());
    this.chart.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show these pieces. */
  show(pieces) {
    this.pieces = pieces.filter((piece) => piece.ids.length);
    this.chart.describe(this.#said());
    this.chart.redraw();
  }

  /** Mark a bar, or none. */
  point(index) {
    if (index === this.index) return;
    this.index = index;
    this.chart.redraw();
  }

  #leave() {
    this.point(null);
    this.chosen(null);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.pieces.length) return;
    event.preventDefault();
    const next = this.index === null ? (step > 0 ? 0 : this.pieces.length - 1) : this.index + step;
    this.point(Math.max(0, Math.min(this.pieces.length - 1, next)));
    this.chosen(this.index);
    this.chart.describe(this.#said());
  }

  #said() {
    const modelled = isModelled(this.pieces);
    const kind = modelled ? "modelled time" : "time on this host";
    const at = this.pieces[this.index];
    const point = at ? `; token ${this.index + 1} “${at.text}” took ${format.seconds(perToken(at, modelled))}` : "";
    return `${kind} of ${this.pieces.length} tokens${point}; arrow keys go from token to token`;
  }

  #times() {
    const modelled = isModelled(this.pieces);
    return this.pieces.map((piece) => perToken(piece, modelled));
  }

  #at(event) {
    const index = Math.floor((this.chart.at(event)[0] / this.chart.width) * this.pieces.length);
    return index >= 0 && index < this.pieces.length ? index : null;
  }

  #draw(context, { width, height, theme }) {
    const times = this.#times();
    context.font = theme.font;
    context.fillStyle = theme.dim;
    if (!times.length) {
      context.fillText("no token yet", 2, height / 2);
      return;
    }
    const top = Math.max(...times);
    // The first token waits for the whole prompt: a scale of its own would hide all others.
    const scale = (height - TOP) / (bound(times) || 1);
    const each = width / times.length;
    times.forEach((time, i) => {
      const size = Math.max(1, Math.min(time * scale, height - TOP));
      context.fillStyle = i === this.index ? theme.accent : theme.parts.compute;
      context.globalAlpha = i === this.index || this.index === null ? 1 : 0.55;
      context.fillRect(i * each, height - size, Math.max(1, each - (each > 4 ? 1 : 0)), size);
      if (time * scale > height - TOP) {
        context.fillStyle = theme.warn;
        context.fillRect(i * each, TOP, Math.max(1, each - (each > 4 ? 1 : 0)), 3);
      }
    });
    context.globalAlpha = 1;
    context.fillStyle = theme.dim;
    const cut = top * scale > height - TOP + 0.5;
    context.fillText(`${cut ? "cut at " : "up to "}${format.seconds((height - TOP) / scale)}${cut ? `; most ${format.seconds(top)}` : ""}`, 2, 11);
  }
}

/** Height of the scale: 1.5 times the 95th percentile, or the highest where that is lower. */
function bound(times) {
  const sorted = [...times].sort((a, b) => a - b);
  return Math.min(sorted.at(-1), 1.5 * sorted[Math.floor(0.95 * (sorted.length - 1))]);
}
