// What is told of a thing that is selected: facts in two columns, lists in small tables, and links to where it is also seen.

import { h } from "abele/core/dom.js";
import { count } from "abele/core/format.js";

/** Names and values below each other; those without a value are left out. */
export function facts(entries) {
  return h("dl.factlist", {}, entries.filter((e) => e && e[1] !== null && e[1] !== undefined && e[1] !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A link to another view with a selection. */
export function link(context, title, view, patch) {
  return h("button.link", { onclick: () => context.go(view, patch) }, title);
}

/**
 * A table of a few rows.
 * @param {string} label
 * @param {Array<[string, (row: any) => (string|number|Node), boolean?]>} columns  heading, cell, whether it is a number
 */
export function listing(label, columns, rows) {
  return h("table.listing", { "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map(([title, , right]) => h(`th${right ? ".right" : ""}`, { scope: "col" }, title)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, cell, right]) => {
      const value = cell(row);
      return h(`td${right ? ".right" : ""}`, { title: typeof value === "string" ? value : undefined }, typeof value === "number" ? count(value) : value);
    })))));
}

/** A heading above a part of the details. */
export function part(title, ...content) {
  return h("section.part", {}, h("h3", {}, title), content);
}

/** A line of a source file, as the report knows it. */
export function source(file, line) {
  return file ? `${file}${line ? ":" + line : ""}` : "";
}

/** What stands where a report is of an earlier format. */
export function untold() {
  return h("p.dim", {}, "This report does not tell it; reports of format 7 do.");
}

/** The last scopes of a name; what the compiler says behind a colon stays. */
export function lastScopes(name, number = 3) {
  const [head, ...tail] = name.split(": ");
  const parts = head.split("/");
  return [(parts.length > number ? "…/" : "") + parts.slice(-number).join("/"), ...tail].join(": ");
}

/** A bar of a share of something, with colours of its parts: [colour, value] each. */
export function shareBar(entries, whole, title = "") {
  const bar = h("div.sharebar", { title });
  for (const [colour, value] of entries) {
    if (!(value > 0) || !(whole > 0)) continue;
    const piece = h("i");
    piece.style.background = colour;
    piece.style.width = `${Math.min(100, (value / whole) * 100)}%`;
    bar.append(piece);
  }
  return bar;
}
