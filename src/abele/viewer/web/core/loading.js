// What stands in the place of a view while it is read: its outline, and in words what is read and how far.

import { h } from "abele/core/dom.js";
import { bytes, count } from "abele/core/format.js";

const TELL = 100;

/** Questions in words: what is waited for, and what a page that is one file does without. */
export const WANTED = {
  compare: "the comparison", curves: "curves of all runs", energy: "energies", exchange: "the exchange", exchanges: "exchanges", facts: "the report's facts", floor: "the floor plan",
  "floor.metric": "colours of the floor plan", graph: "the graph", "graph.tile": "the graph of a tile", "host.event": "the event", "host.events": "events of the host", "host.find": "what is found",
  "host.heatmap": "heat maps", "host.outline": "what was measured", "host.series": "series", "host.window": "figures of the window", insights: "what limits the program", "liveness.at": "what is live",
  "liveness.curve": "the liveness curve", "liveness.floor": "live bytes by tile", "liveness.groups": "groups of variables", "liveness.lifetimes": "lifetimes", "liveness.stack": "the parts of the curve",
  "liveness.steps": "steps", "liveness.touched": "what steps touch", matrix: "the matrix", "matrix.axes": "axes of the matrix", "memory.categories": "memory by category", "memory.code": "state and code", "memory.codelets": "codelets", "memory.kept": "temporaries",
  "memory.order": "the order of tiles", "memory.overflow": "what is too much", "memory.steps": "steps of tiles", "memory.tiles": "memory by tile", "memory.variables": "variables", operation: "the operation",
  operations: "operations", "operations.groups": "groups of operations", program: "the program tree", roofline: "the roofline", sparse: "sparse operands", "sparse.tiles": "sparse values by tile", step: "the step", table: "rows", tiles: "tiles", "timeline.at": "the place",
  "timeline.blocks": "blocks", "timeline.depth": "the depth of flames", "timeline.find": "what is found", "timeline.flame": "flames", "timeline.lanes": "lanes", "timeline.outline": "the list of lanes",
  "timeline.step": "the step", "timeline.summary": "figures of the run", "timeline.tiles": "tiles over time", "timeline.window": "figures of the window",
};

/** The outline of a view that is being read. It shows until the view is there and nothing that it asked for is missing. */
export class Loading {
  /** @param {import("./source.js").Source} source  whose answers are waited for */
  constructor(source) {
    this.source = source;
    this.words = h("p.loading-words", { role: "status" });
    this.done = h("i");
    this.bar = h("div.loading-bar", {}, this.done);
    this.element = h("div.loading", {}, h("div.loading-told", {}, this.words, this.bar), h("div.loading-outline", { "aria-hidden": "true" }, h("i"), h("i"), h("i"), h("i")));
    this.element.hidden = true;
    this.isMaking = false;
    source.addEventListener("busy", () => this.#look());
  }

  /**
   * A view begins.
   * @param {string} title
   * @param {string} [of]  the report, in words
   */
  begin(title, of = "") {
    clearInterval(this.timer);
    Object.assign(this, { title, of, isMaking: true, from: performance.now(), asked: this.source.asked, bytes: this.source.bytes });
    this.element.hidden = false;
    this.timer = setInterval(() => this.#tell(), TELL);
    this.#tell();
  }

  /** The view is made: what it still waits for is told until it is there. */
  made() {
    this.isMaking = false;
    this.#look();
  }

  /** Nothing is read any more. */
  end() {
    clearInterval(this.timer);
    this.element.hidden = true;
  }

  #look() {
    if (this.element.hidden) return;
    this.#tell();
    if (this.isMaking || this.source.waiting.size) return;
    // What is drawn in the next frame may ask for more.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      if (!this.isMaking && !this.source.waiting.size) this.end();
    }));
  }

  #tell() {
    const { source } = this;
    const asked = source.asked - this.asked;
    const here = Math.max(0, asked - source.waiting.size);
    const names = [...new Set(source.waiting.values())].map((name) => WANTED[name] ?? name);
    const size = source.bytes - this.bytes;
    const far = [asked ? `${count(here)} of ${count(asked)} ${asked === 1 ? "part" : "parts"} read` : "", size ? bytes(size) : "", `${((performance.now() - this.from) / 1000).toFixed(1)} s`];
    this.words.textContent = `${this.title}: reading ${names.join(", ") || "the page"}${this.of ? ` of ${this.of}` : ""} · ${far.filter(Boolean).join(", ")}`;
    this.done.style.width = `${asked ? Math.round((100 * here) / asked) : 0}%`;
  }
}
