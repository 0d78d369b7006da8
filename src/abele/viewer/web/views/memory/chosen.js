// The selected tiles: their text, how many, and marks; words such as "top 10" are resolved by the server.

import { h } from "abele/core/dom.js";
import { count } from "abele/core/format.js";
import { marked } from "abele/core/tileset.js";

/** The selection of tiles as the state says it. */
export class Chosen {
  constructor(context) {
    this.context = context;
    this.text = "";
    this.marks = null;
    this.number = 0;
  }

  /** Read the state; true when marks are there at once, else they come with the promise. */
  async read() {
    const text = this.context.state.get("tiles");
    const { num_tiles: most } = this.context.facts;
    this.text = text;
    if (!text.trim()) {
      [this.marks, this.number] = [null, 0];
      return;
    }
    const marks = marked(text, most);
    if (marks) {
      [this.marks, this.number] = [marks, marks.reduce((a, b) => a + b, 0)];
      return;
    }
    const { head, arrays } = await this.context.ask("tiles", { text });
    if (this.text !== text) return;
    this.marks = new Uint8Array(most);
    for (const tile of arrays.tiles) this.marks[tile] = 1;
    this.number = head.count;
  }

  /** In words. */
  words() {
    if (!this.text.trim()) return "no tile selected: all tiles";
    if (this.number === 0) return "no such tile";
    if (this.number === 1) return `tile ${this.marks.indexOf(1)}`;
    return `${count(this.number)} tiles`;
  }
}

/** The box in which tiles are named, with what it means beside it. */
export function tilesInput(context, chosen) {
  const said = h("span.dim", { role: "status" });
  const input = h("input.filter.tiles-input", {
    type: "text", placeholder: "tiles: 3, 10-12, over, top 10 …", "aria-label": "Select tiles", spellcheck: "false",
    title: "Numbers and ranges: 3, 10-12. Words: all, over (too full), top 10, least 10, ipu 2, total>600kB, temporaries>100kB, variable 12, with NAME. Terms are joined by commas.",
  });
  const take = async () => {
    const text = input.value.trim();
    try {
      const marks = marked(text, context.facts.num_tiles);
      const told = marks ? text : (await context.ask("tiles", { text })).head.text;
      if (text && !told) {
        said.className = "warn";
        said.textContent = "no tile is so";
        return;
      }
      context.state.set({ tiles: told || null });
    } catch (error) {
      said.className = "bad";
      said.textContent = [error.message, error.remedy].filter(Boolean).join(": ");
      said.title = said.textContent;
    }
  };
  input.addEventListener("change", take);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") take();
    if (event.key === "Escape") {
      input.value = "";
      take();
      input.blur();
    }
  });
  return {
    element: h("span.tiles-box", {}, input, said),
    show() {
      if (document.activeElement !== input || context.state.get("tiles")) input.value = context.state.get("tiles");
      said.className = "dim";
      said.title = "";
      said.textContent = chosen.words();
    },
  };
}
