// The strip above a chart that shows the whole axis, with a window that is dragged and has two handles.

import { Chart } from "abele/core/chart.js";

const HANDLE = 7;
const LEAST_DRAG = 2;
const CURSORS = { low: "ew-resize", high: "ew-resize", window: "grab", new: "crosshair" };

/**
 * What a press takes hold of; of a window that is no wider than its handles, the nearer one.
 * @param {number} x  pixel
 * @param {number} low @param {number} high  the window in pixels
 * @returns {"low"|"high"|"window"|"new"}
 */
export function grip(x, low, high) {
  const [toLow, toHigh] = [Math.abs(x - low), Math.abs(x - high)];
  if (toLow <= HANDLE && (toLow < toHigh || x <= low)) return "low";
  if (toHigh <= HANDLE) return "high";
  return x > low && x < high ? "window" : "new";
}

export class Brush {
  /**
   * @param {object} how
   * @param {import("./range.js").Range} how.range
   * @param {string} how.label
   * @param {(context: CanvasRenderingContext2D, place: {left: number, width: number, height: number, theme: any}) => void} how.draw  the whole axis
   * @param {() => {left: number, right: number}} how.margins  pixels beside the axis, as the chart below has them
   * @param {(range: import("./range.js").Range) => string} [how.text]  the window in words
   * @param {number} [how.height]  CSS pixels
   */
  constructor({ range, label, draw, margins, text, height = 30 }) {
    Object.assign(this, { range, margins, text });
    this.chart = new Chart({ label, name: "overview", height, draw: (context, place) => this.#draw(context, place, draw) });
    this.element = this.chart.element;
    this.element.classList.add("brush");
    this.chart.canvas.setAttribute("role", "slider");
    this.onChange = () => this.redraw();
    range.addEventListener("change", this.onChange);
    this.#listen();
  }

  redraw() {
    if (this.text) this.chart.canvas.setAttribute("aria-valuetext", this.text(this.range));
    this.chart.redraw();
  }

  destroy() {
    this.range.removeEventListener("change", this.onChange);
    this.chart.destroy();
  }

  /** Left end and width of the axis, and the ends of the window on it, in pixels. */
  #places(width) {
    const { left, right } = this.margins();
    const across = Math.max(1, width - left - right);
    const { low, high, least, most } = this.range;
    const scale = across / (most - least);
    return { left, across, low: left + (low - least) * scale, high: left + (high - least) * scale };
  }

  #draw(context, { width, height, theme }, draw) {
    const { left, across, low, high } = this.#places(width);
    draw(context, { left, width: across, height, theme });
    context.globalAlpha = 0.62;
    context.fillStyle = theme.back;
    context.fillRect(left, 0, low - left, height);
    context.fillRect(high, 0, left + across - high, height);
    context.globalAlpha = 1;
    context.strokeStyle = theme.accent;
    context.lineWidth = 1;
    context.strokeRect(low + 0.5, 0.5, Math.max(1, high - low - 1), height - 1);
    context.fillStyle = theme.accent;
    for (const x of [low, high]) context.fillRect(x - 2, height * 0.25, 4, height * 0.5);
  }

  #listen() {
    const { range } = this;
    const { canvas } = this.chart;
    let held = null;
    const place = (event) => {
      const { left, across, low, high } = this.#places(this.chart.width);
      const x = event.clientX - canvas.getBoundingClientRect().left;
      return { x, low, high, value: range.least + ((x - left) / across) * (range.most - range.least) };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const { x, low, high, value } = place(event);
      held = { kind: grip(x, low, high), x, from: value, low: range.low, high: range.high };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const { x, low, high, value } = place(event);
      if (!held) canvas.style.cursor = CURSORS[grip(x, low, high)];
      else if (held.kind === "low") range.set(Math.min(value, held.high - range.finest), held.high);
      else if (held.kind === "high") range.set(held.low, Math.max(value, held.low + range.finest));
      else if (held.kind === "window") range.set(held.low + value - held.from, held.high + value - held.from);
      else if (Math.abs(x - held.x) > LEAST_DRAG) range.set(Math.min(value, held.from), Math.max(value, held.from));
    });
    const end = () => { held = null; };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", () => range.whole());
    canvas.addEventListener("wheel", (event) => {
      range.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), place(event).value);
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -0.1, ArrowRight: 0.1 };
      if (event.key in steps) range.move(steps[event.key]);
      else if (event.key === "ArrowUp") range.zoom(0.7);
      else if (event.key === "ArrowDown") range.zoom(1 / 0.7);
      else if (event.key === "Home") range.whole();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
