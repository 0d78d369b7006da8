// The tree of what tiles hold, a column for each tile or for figures of many.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, percent, signed } from "abele/core/format.js";
import { failure } from "abele/core/parts.js";

/** The tree of categories of the selection. */
export function categoriesTab(context, chosen) {
  const element = h("div.scrolls");
  const closed = new Set(context.state.get("memory.closed").split(",").filter(Boolean));
  const unit = () => context.state.get("unit", "auto");
  let answer = null;

  const columns = () => {
    const { head, arrays } = answer;
    const rows = head.rows.length;
    const each = (i) => (row) => arrays.each[i * rows + row];
    if (chosen.text && head.count <= head.tiles.length) {
      return head.tiles.flatMap((tile, i) => [
        { title: `tile ${tile}`, value: each(i), tile },
        ...(i ? [{ title: `− tile ${head.tiles[0]}`, value: (row) => each(i)(row) - each(0)(row), difference: true }] : []),
      ]);
    }
    return [
      { title: chosen.text ? `${count(head.count)} tiles` : "all tiles", value: (row) => arrays.sum[row] },
      { title: "mean", value: (row) => arrays.mean[row] },
      { title: "least", value: (row) => arrays.least[row] },
      { title: "most", value: (row) => arrays.most[row] },
      { title: `tile ${head.fullest}, the fullest`, value: (row) => arrays.fullest[row], tile: head.fullest, share: true },
    ];
  };

  const hidden = (row) => {
    const { rows } = answer.head;
    let depth = rows[row].depth;
    for (let i = row - 1; i >= 0; i -= 1) {
      if (rows[i].depth < depth) {
        if (closed.has(rows[i].key)) return true;
        depth = rows[i].depth;
      }
    }
    return false;
  };

  const cell = (column, row) => {
    const value = column.value(row);
    if (column.difference) return h(`td.right${value > 0 ? ".bad" : value < 0 ? ".good" : ".dim"}`, {}, value ? signed(value, (v) => bytes(v, unit())) : "·");
    if (!value) return h("td.right.dim", {}, "·");
    const whole = column.value(0);
    const note = whole ? percent(value / whole) : "";
    return h("td.right", { title: `${count(value)} B${note ? `, ${note} of what is there` : ""}` }, bytes(value, unit()), column.share ? h("span.share.dim", {}, note) : null);
  };

  const draw = () => {
    const { head } = answer;
    const shown = columns();
    const parent = (row) => head.rows[row + 1]?.depth > head.rows[row].depth;
    fill(element, h("table.tree", {},
      h("thead", {}, h("tr", {}, h("th", {}, chosen.words()), shown.map((c) => h("th.right", {}, c.tile === undefined || c.tile < 0 ? c.title
        : h("button.link", { onclick: () => context.state.set({ tiles: c.tile }), title: "Select this tile alone" }, c.title))))),
      h("tbody", {}, head.rows.map((row, i) => hidden(i) ? null : h(`tr.depth-${row.depth}${row.key === "over" && answer.arrays.most[i] ? ".bad" : ""}`, {},
        h("th", { scope: "row" }, h("span", { class: `indent-${row.depth}` }, parent(i) ? h("button.link.fold", {
          "aria-expanded": closed.has(row.key) ? "false" : "true", "aria-label": `${row.name}: open or close`,
          onclick: () => {
            if (closed.has(row.key)) closed.delete(row.key);
            else closed.add(row.key);
            context.state.set({ "memory.closed": [...closed].join(",") || null });
            draw();
          },
        }, closed.has(row.key) ? "▸" : "▾") : h("span.fold"), row.name)),
        shown.map((c) => cell(c, i)))))));
  };

  return {
    element,
    async update() {
      try {
        const text = chosen.text;
        const found = await context.ask("memory.categories", { tiles: text });
        if (text !== chosen.text) return;
        answer = found;
        draw();
      } catch (error) {
        fill(element, failure(error));
      }
    },
    destroy() {},
  };
}
