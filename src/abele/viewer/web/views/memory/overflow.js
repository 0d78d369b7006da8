// Out of memory: how much too much on how many tiles, and what would have to go.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, percent } from "abele/core/format.js";
import { failure } from "abele/core/parts.js";

export function overflowTab(context) {
  const element = h("div.scrolls.overflow");
  const unit = () => context.state.get("unit", "auto");
  const draw = ({ head }) => {
    const { worst } = head;
    const link = (text, patch) => h("button.link", { onclick: () => context.state.set(patch) }, text);
    fill(element,
      h("p", {}, h("b.bad", {}, `${count(head.count)} of ${count(context.facts.num_tiles)} tiles are too full`),
        `, by up to ${bytes(worst.bytes, unit())} (`, link(`tile ${worst.tile}`, { tiles: worst.tile }), `), ${bytes(head.over_bytes, unit())} together. `,
        link("Select them", { tiles: "over" }), worst.step >= 0 ? [". Tile ", String(worst.tile), " is fullest at ", h("button.link", { onclick: () => context.go("liveness", { step: worst.step, tiles: worst.tile, "liveness.source": "tiles" }) }, `step ${count(worst.step)}`)] : null, "."),
      h("p.dim", {}, head.where),
      h("ul", {}, head.advice.map((line) => h("li", {}, line))),
      h("table.tree", {}, h("thead", {}, h("tr", {}, ["what would have to go", "", "on these tiles", "at most per tile", "share", "tiles that would fit without it", "enough for all"].map((title, i) => h(i > 1 ? "th.right" : "th", {}, title)))),
        h("tbody", {}, head.contributors.map((each) => h("tr", {},
          h("th", { scope: "row" }, each.row >= 0 ? link(each.name || "(no name)", { variable: each.row, "memory.variables": each.row, "memory.kind": "variables" }) : each.name),
          h("td.dim", {}, each.kind),
          h("td.right", {}, bytes(each.bytes, unit())), h("td.right", {}, bytes(each.each, unit())),
          h("td.right", {}, percent(each.share)),
          h(`td.right${each.would_fit === head.count ? ".good" : ""}`, {}, `${count(each.would_fit)} of ${count(head.count)}`),
          h("td.right", {}, each.would_fit === head.count ? `${percent(each.less)} less` : "–"))))));
  };
  return {
    element,
    async update() {
      try {
        draw(await context.ask("memory.overflow"));
      } catch (error) {
        fill(element, failure(error));
      }
    },
    destroy() {},
  };
}
