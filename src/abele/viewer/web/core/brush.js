// The strip above a chart that shows the whole axis, with a window that is dragged and has two handles.

import { Chart } from "abele/core/chart.js";

const HANDLE = 7;

/** What a press at a pixel takes hold of: "low", "high", "window", or "new" beside it. Pure. */
export function grip(x, low, high) {
  if (Math.abs(x - low) <= HANDLE && Math.abs(x - low) <= Math.abs(x - high)) return "low";
  if (Math.abs(x - high) <= HANDLE) return "high";
  return x > low && x < high ? "window" : "new";
}

export class Brush {
  /**
   * @param {object} how
   * @param {import("./range.js").Range} how.range
   * @param {string} how.label
   * @param {(context: CanvasRenderingContext2D, place: {left: number, width: number, height: number, theme: any}) => void} how.draw  the whole axis
   * @param {() => {left: number, right: number}} how.margins  pixels beside the axis, as the chart below has them
   */
  constructor({ range, label, draw, margins, height = 30 }) {
    Object.assign(this, { range, margins });
    this.chart = new Chart({ label, name: "overview", height, draw: (context, { width, height: tall, theme }) => {
      const { left, right } = margins();
      const across = Math.max(1, width - left - right);
      draw(context, { left, width: across, height: tall, theme });
      const [low, high] = this.#ends(left, across);
      context.globalAlpha = 0.62;
      context.fillStyle = theme.back;
      context.fillRect(left, 0, low - left, tall);
      context.fillRect(high, 0, left + across - high, tall);
      context.globalAlpha = 1;
      context.strokeStyle = theme.accent;
      context.lineWidth = 1;
      context.strokeRect(low + 0.5, 0.5, Math.max(1, high - low - 1), tall - 1);
      context.fillStyle = theme.accent;
      for (const x of [low, high]) context.fillRect(x - 2, tall * 0.25, 4, tall * 0.5);
    } });
    this.element = this.chart.element;
    this.element.classList.add("brush");
    this.chart.canvas.setAttribute("role", "slider");
    this.onChange = () => this.chart.redraw();
    range.addEventListener("change", this.onChange);
    this.#listen();
  }

  destroy() {
    this.range.removeEventListener("change", this.onChange);
    this.chart.destroy();
  }

  #ends(left, width) {
    const { low, high, least, most } = this.range;
    const scale = width / (most - least);
    return [left + (low - least) * scale, left + (high - least) * scale];
  }

  #listen() {
    const { canvas } = this.chart;
    let held = null;
    const place = (event) => {
      const { left, right } = this.margins();
      const width = Math.max(1, this.chart.width - left - right);
      const x = event.clientX - canvas.getBoundingClientRect().left;
      const [low, high] = this.#ends(left, width);
      return { x, low, high, value: this.range.least + ((x - left) / width) * (this.range.most - this.range.least) };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const { x, low, high, value } = place(event);
      held = { kind: grip(x, low, high), from: value, low: this.range.low, high: this.range.high };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const { x, low, high, value } = place(event);
      if (!held) {
        canvas.style.cursor = { low: "ew-resize", high: "ew-resize", window: "grab", new: "crosshair" }[grip(x, low, high)];
        return;
      }
      if (held.kind === "low") this.range.set(Math.min(value, held.high - this.range.finest), held.high);
      else if (held.kind === "high") this.range.set(held.low, Math.max(value, held.low + this.range.finest));
      else if (held.kind === "window") this.range.set(held.low + value - held.from, held.high + value - held.from);
      else if (Math.abs(value - held.from) > 0) this.range.set(Math.min(value, held.from), Math.max(value, held.from));
    });
    const end = () => { held = null; };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", () => this.range.whole());
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -0.1, ArrowRight: 0.1 };
      if (event.key in steps) this.range.move(steps[event.key]);
      else if (event.key === "ArrowUp") this.range.zoom(0.7);
      else if (event.key === "ArrowDown") this.range.zoom(1 / 0.7);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
