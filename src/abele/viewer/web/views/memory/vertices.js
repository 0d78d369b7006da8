// Vertices and their codelets on the selected tiles.

import { fill, h } from "abele/core/dom.js";

export function verticesTab(context) {
  const element = h("div.scrolls");
  return {
    element,
    async update() {
      fill(element, h("p.dim", {}, "This report does not say which codelets lie on which tiles; code and state of vertices are in the tree of categories, and the tab of compute sets has the vertices of each step."));
    },
    destroy() {},
  };
}
