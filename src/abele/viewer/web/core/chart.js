// A canvas that is as sharp as the screen, drawn at most once a frame, and saved as PNG or SVG.

import { everyFrame, h } from "abele/core/dom.js";
import { SvgContext } from "abele/core/svg.js";
import { theme } from "abele/core/theme.js";

/**
 * @typedef {{width: number, height: number, theme: import("./theme.js").Theme}} Place  size in CSS pixels
 */
export class Chart {
  /**
   * @param {{label: string, draw: (context: CanvasRenderingContext2D, place: Place) => void, height?: number, name?: string}} how
   *        label: what a screen reader says; height in CSS pixels, else as tall as the box around it
   */
  constructor({ label, draw, height, name = "chart" }) {
    this.draw = draw;
    this.name = name;
    this.canvas = h("canvas", { role: "img", "aria-label": label, tabindex: "0" });
    this.element = h("div.chart", {}, this.canvas);
    if (height) this.element.style.height = `${height}px`;
    this.width = 0;
    this.height = 0;
    this.redraw = everyFrame(() => this.#paint());
    this.observer = new ResizeObserver(() => this.#resized());
    this.observer.observe(this.element);
    this.frames = 0;
  }

  /** Say something else to a screen reader. */
  describe(label) {
    this.canvas.setAttribute("aria-label", label);
  }

  /** Where an event happens in the picture, in CSS pixels. */
  at(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  setHeight(height) {
    this.element.style.height = `${height}px`;
  }

  destroy() {
    this.observer.disconnect();
  }

  /** The picture as a PNG. */
  async png() {
    return new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }

  /** The picture as the text of an SVG. */
  svg() {
    const context = new SvgContext(this.width, this.height);
    const colours = theme();
    context.fillStyle = colours.back;
    context.fillRect(0, 0, this.width, this.height);
    this.draw(context, { width: this.width, height: this.height, theme: colours });
    return context.text();
  }

  #resized() {
    const box = this.element.getBoundingClientRect();
    const ratio = globalThis.devicePixelRatio || 1;
    [this.width, this.height] = [box.width, box.height];
    this.canvas.width = Math.max(1, Math.round(box.width * ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    this.#paint();
  }

  #paint() {
    if (!this.width || !this.height) return;
    const context = this.canvas.getContext("2d");
    const ratio = this.canvas.width / this.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.save();
    this.draw(context, { width: this.width, height: this.height, theme: theme() });
    context.restore();
    this.frames += 1;
  }
}

/** Save a blob or text as a file of the user's. */
export function download(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
