// A search by name that flies from one find to the next.

import { h, settled } from "abele/core/dom.js";
import { count } from "abele/core/format.js";

/** The first of the ascending places after `now`, or the last before it; round at the ends. */
export function neighbour(starts, now, step) {
  const { length } = starts;
  if (!length) return -1;
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= now) low = middle + 1;
    else high = middle;
  }
  return step > 0 ? low % length : (low - 1 + length) % length;
}

export class Search {
  /**
   * @param {import("abele/core/context.js").Context} context
   * @param {object} how
   * @param {(text: string) => Promise<any>} how.find  an answer with array `start`, ascending, and head.total
   * @param {(found: any, i: number) => void} how.go
   * @param {() => number} how.now
   * @param {string} [how.label]
   */
  constructor(context, { find, go, now, label = "Search steps", name = "timeline.search" }) {
    Object.assign(this, { context, find, go, now, name });
    this.found = null;
    this.at = -1;
    this.asked = 0;
    this.input = h("input.tsearch", { type: "search", placeholder: label.toLowerCase(), "aria-label": label, value: context.state.get(name), spellcheck: "false" });
    this.note = h("span.dim", { role: "status" });
    const look = settled(() => this.look(), 80);
    this.input.addEventListener("input", look);
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") this.input.blur();
      else return;
      event.preventDefault();
    });
    this.element = h("span.bar", {}, this.input,
      h("button.small", { onclick: () => this.next(-1), title: "Previous (shift + Enter)", "aria-label": "Previous" }, "‹"),
      h("button.small", { onclick: () => this.next(1), title: "Next (Enter)", "aria-label": "Next" }, "›"), this.note);
    if (this.input.value) this.look();
  }

  async look() {
    this.asked += 1;
    const mine = this.asked;
    const text = this.input.value.trim();
    this.context.state.set({ [this.name]: text || null });
    this.found = null;
    this.at = -1;
    this.note.textContent = "";
    if (!text) return;
    try {
      const found = await this.find(text);
      if (mine !== this.asked) return;
      this.found = found;
      this.note.className = "dim";
      this.note.textContent = found.head.total ? `${count(found.head.total)} found` : "none";
    } catch (error) {
      if (mine !== this.asked) return;
      this.note.className = "bad";
      this.note.textContent = error.message;
    }
  }

  async next(step) {
    if (!this.found && this.input.value.trim()) await this.look();
    const starts = this.found?.arrays.start ?? [];
    if (!starts.length) return;
    this.at = this.at < 0 ? neighbour(starts, this.now(), step) : (this.at + step + starts.length) % starts.length;
    this.note.textContent = `${count(this.at + 1)} of ${count(this.found.head.total)}`;
    this.go(this.found, this.at);
  }

  destroy() {
    this.asked += 1;
  }
}
