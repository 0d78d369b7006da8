// The overview of an axis: all of it, small, with a window on it that two handles change.

import { Chart } from "abele/core/chart.js";
import { h } from "abele/core/dom.js";

const HANDLE = 7;

/**
 * What a press on the strip takes hold of.
 * @param {number} x  pixel
 * @param {number} low @param {number} high  the window in pixels
 * @returns {"low"|"high"|"move"|"new"}
 */
export function grip(x, low, high, handle = HANDLE) {
  if (Math.abs(x - low) <= handle && (x <= low || high - low > handle * 2 || Math.abs(x - low) < Math.abs(x - high))) return "low";
  if (Math.abs(x - high) <= handle) return "high";
  return x > low && x < high ? "move" : "new";
}

export class Brush {
  /**
   * @param {import("abele/core/range.js").Range} range
   * @param {object} how
   * @param {(context: CanvasRenderingContext2D, place: {left: number, width: number, height: number, theme: any}) => void} how.draw  what is below
   * @param {string} how.label
   * @param {() => number} how.left  where the axis begins
   * @param {(range: any) => string} how.text  the window in words
   */
  constructor(range, { draw, label, left, text, height = 44 }) {
    this.range = range;
    this.left = left;
    this.text = text;
    this.chart = new Chart({ label, height, name: "overview", draw: (context, place) => this.#draw(context, place, draw) });
    this.element = h("div.brush", {}, this.chart.element);
    const { canvas } = this.chart;
    canvas.setAttribute("role", "slider");
    let held = null;
    const plot = () => this.chart.width - this.left() - 8;
    const value = (event) => range.least + ((event.clientX - canvas.getBoundingClientRect().left - this.left()) / plot()) * (range.most - range.least);
    const pixel = (v) => ((v - range.least) / (range.most - range.least)) * plot();
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const at = value(event);
      held = { kind: grip(pixel(at), pixel(range.low), pixel(range.high)), at, low: range.low, high: range.high };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = value(event);
      if (!held) {
        const kind = grip(pixel(now), pixel(range.low), pixel(range.high));
        canvas.style.cursor = { low: "ew-resize", high: "ew-resize", move: "grab", new: "crosshair" }[kind];
        return;
      }
      if (held.kind === "low") range.set(Math.min(now, held.high - range.finest), held.high);
      else if (held.kind === "high") range.set(held.low, Math.max(now, held.low + range.finest));
      else if (held.kind === "move") range.set(held.low + now - held.at, held.high + now - held.at);
      else if (Math.abs(pixel(now) - pixel(held.at)) > 2) range.set(Math.min(now, held.at), Math.max(now, held.at));
    });
    const end = () => { held = null; };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", () => range.whole());
    canvas.addEventListener("wheel", (event) => {
      range.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), value(event));
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
      if (step) range.move(step);
      else if (event.key === "ArrowUp") range.zoom(0.7);
      else if (event.key === "ArrowDown") range.zoom(1.4);
      else if (event.key === "Home") range.whole();
      else return;
      event.preventDefault();
    });
  }

  redraw() {
    this.chart.canvas.setAttribute("aria-valuetext", this.text(this.range));
    this.chart.redraw();
  }

  #draw(context, { width, height, theme }, draw) {
    const left = this.left();
    const plot = width - left - 8;
    const { range } = this;
    draw(context, { left, width: plot, height, theme });
    const x = (v) => left + ((v - range.least) / (range.most - range.least)) * plot;
    const [a, b] = [x(range.low), Math.max(x(range.high), x(range.low) + 2)];
    context.globalAlpha = 0.62;
    context.fillStyle = theme.back;
    context.fillRect(left, 0, a - left, height);
    context.fillRect(b, 0, left + plot - b, height);
    context.globalAlpha = 1;
    context.strokeStyle = theme.accent;
    context.lineWidth = 1;
    context.strokeRect(a + 0.5, 0.5, Math.max(b - a - 1, 1), height - 1);
    context.fillStyle = theme.accent;
    for (const at of [a, b]) context.fillRect(at - 2, height / 2 - 9, 4, 18);
  }
}
