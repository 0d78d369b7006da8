// Temporaries on a tile when they take most of it, and the operations that keep them.

import { fill, h } from "abele/core/dom.js";
import { bytes, count } from "abele/core/format.js";
import { empty, failure } from "abele/core/parts.js";

export function keptTab(context, chosen) {
  const element = h("div.scrolls.kept");
  const size = (value) => bytes(value, context.state.get("unit", "auto"));
  const draw = ({ head }) => {
    if (head.peak_step < 0) {
      fill(element, empty(`Nothing comes and goes on tile ${count(head.tile)}.`));
      return;
    }
    const rows = head.moving_bytes ? [...head.rows, { name: "data in motion", bytes: head.moving_bytes, why: "buffers of that step", variable: -1 }] : head.rows;
    rows.sort((a, b) => b.bytes - a.bytes);
    const link = (each) => (each.variable < 0 ? each.name : h("button.link", { onclick: () => context.state.set({ variable: each.variable }) }, each.name || "(no name)"));
    fill(element,
      h("p", {}, `Tile ${count(head.tile)} holds most of what comes and goes at `,
        h("button.link", { onclick: () => context.go("liveness", { step: head.peak_step, tiles: head.tile, "liveness.source": "tiles" }) }, `step ${count(head.peak_step)}`), `, ${head.peak}.`,
        head.total > head.rows.length ? ` The ${count(head.rows.length)} largest of ${count(head.total)} variables:` : ""),
      h("table.tree", {}, h("thead", {}, h("tr", {}, h("th", {}, "variable"), h("th.right", {}, "on the tile"), h("th", {}, "why it is there"), h("th", {}, "made by"))),
        h("tbody", {}, rows.map((each) => h("tr", {}, h("th", { scope: "row" }, link(each)), h("td.right", {}, size(each.bytes)), h("td", {}, each.why), h("td", {}, each.made_by ?? ""))))));
  };
  return {
    element,
    async update() {
      // Of one tile: the one that is selected, or else the fullest.
      const text = chosen.text.trim();
      try {
        draw(await context.ask("memory.kept", { tile: /^\d+$/.test(text) ? text : String(context.facts.fullest_tile ?? "") || undefined }));
      } catch (error) {
        fill(element, failure(error));
      }
    },
    destroy() {},
  };
}
