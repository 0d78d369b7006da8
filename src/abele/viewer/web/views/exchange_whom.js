// Who sends to whom: blocks of tiles that send as rows, those that receive as columns, bytes as colours.

import { Chart } from "abele/core/chart.js";
import { bytes, count } from "abele/core/format.js";
import { hideTip, tip } from "abele/core/tip.js";

const EDGE = { left: 52, right: 8, top: 26, bottom: 6 };

/** Places of numbers in order, each once. */
export function places(numbers) {
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  return { distinct, at: new Map(distinct.map((n, i) => [n, i])) };
}

export class WhoToWhom {
  constructor(context) {
    this.context = context;
    this.answer = null;
    this.chart = new Chart({ label: "Who sends to whom", name: "who-to-whom", draw: (c, p) => this.#draw(c, p) });
    this.element = this.chart.element;
    this.element.classList.add("grows");
    this.chart.canvas.addEventListener("pointermove", (event) => this.#hover(event));
    this.chart.canvas.addEventListener("pointerleave", hideTip);
    this.chart.canvas.addEventListener("click", (event) => {
      const at = this.#under(event);
      if (at) context.state.set({ tiles: [...new Set([this.#tiles(at.from), this.#tiles(at.to)])].join(", ") });
    });
  }

  destroy() {
    this.chart.destroy();
  }

  show(answer) {
    this.answer = answer;
    const { arrays } = answer;
    this.from = places(arrays.block_from);
    this.to = places(arrays.block_to);
    this.bytes = new Map();
    this.most = 0;
    for (let i = 0; i < arrays.block_bytes.length; i += 1) {
      this.bytes.set(`${this.from.at.get(arrays.block_from[i])} ${this.to.at.get(arrays.block_to[i])}`, arrays.block_bytes[i]);
      this.most = Math.max(this.most, arrays.block_bytes[i]);
    }
    this.chart.describe(`Who sends to whom: ${this.from.distinct.length} blocks of tiles send to ${this.to.distinct.length}, at most ${bytes(this.most)} from one to another`);
    this.chart.redraw();
  }

  #tiles(first) {
    const size = this.answer.head.block_tiles;
    return size > 1 ? `${first}-${Math.min(first + size, this.context.facts.num_tiles) - 1}` : `${first}`;
  }

  #cell() {
    const { width, height } = this.chart;
    return [Math.max(0.5, (width - EDGE.left - EDGE.right) / Math.max(1, this.to.distinct.length)), Math.max(0.5, (height - EDGE.top - EDGE.bottom) / Math.max(1, this.from.distinct.length))];
  }

  #under(event) {
    if (!this.answer) return null;
    const [x, y] = this.chart.at(event);
    const [w, t] = this.#cell();
    const [column, row] = [Math.floor((x - EDGE.left) / w), Math.floor((y - EDGE.top) / t)];
    const [from, to] = [this.from.distinct[row], this.to.distinct[column]];
    return from === undefined || to === undefined ? null : { from, to, bytes: this.bytes.get(`${row} ${column}`) ?? 0 };
  }

  #hover(event) {
    const at = this.#under(event);
    if (!at) return hideTip();
    return tip(event, [`tiles ${this.#tiles(at.from)} to ${this.#tiles(at.to)}`, ["bytes", bytes(at.bytes, this.context.state.get("unit", "auto"))]]);
  }

  #draw(context, { width, height, theme: colours }) {
    if (!this.answer) return;
    const { arrays } = this.answer;
    const [w, t] = this.#cell();
    context.fillStyle = colours.back;
    context.fillRect(EDGE.left, EDGE.top, width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom);
    for (let i = 0; i < arrays.block_bytes.length; i += 1) {
      context.fillStyle = colours.heat[20 + Math.round(235 * Math.sqrt(arrays.block_bytes[i] / this.most))];
      context.fillRect(EDGE.left + this.to.at.get(arrays.block_to[i]) * w, EDGE.top + this.from.at.get(arrays.block_from[i]) * t, Math.max(w - (w > 5 ? 1 : 0), 1), Math.max(t - (t > 5 ? 1 : 0), 1));
    }
    context.fillStyle = colours.dim;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    const every = (cell, room) => Math.max(1, Math.ceil(room / cell));
    for (let i = 0; i < this.to.distinct.length; i += every(w, 40)) context.fillText(count(this.to.distinct[i]), EDGE.left + (i + 0.5) * w, EDGE.top - 4);
    context.textAlign = "right";
    for (let i = 0; i < this.from.distinct.length; i += every(t, 14)) context.fillText(count(this.from.distinct[i]), EDGE.left - 4, EDGE.top + (i + 0.5) * t + 3);
    context.textAlign = "left";
    context.fillText("from ↓  to tiles →", 2, 10);
  }
}
