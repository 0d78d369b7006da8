// Where the cycles of a decode step go: a bar of shares, and a row for each part.

import { fill, h } from "abele/core/dom.js";
import * as format from "abele/core/format.js";

const COLOURS = {
  attention: "var(--series-6)", products: "var(--part-compute)", sampling: "var(--series-5)", elementwise: "var(--part-arrange)",
  exchange: "var(--part-exchange)", sync: "var(--part-sync)", host: "var(--part-host)", streaming: "var(--part-memory)",
};

/** @param {HTMLElement} element @param {object|null} step  as /abele/machine says it */
export function showStep(element, step) {
  if (!step) {
    fill(element, h("h2", {}, "Where a step's cycles go"), h("p.dim", {}, "Nothing is modelled: the model runs in plain PyTorch, and times are this host's."));
    return;
  }
  const parts = step.parts.filter((part) => part.cycles > 0).sort((a, b) => b.cycles - a.cycles);
  const most = parts[0]?.cycles ?? 1;
  fill(element,
    h("h2", {}, "Where a step's cycles go"),
    h("p.dim", {}, `${format.cycles(step.cycles)} = ${format.seconds(step.seconds)} on ${step.machine}`),
    h("div.step-rows", { role: "table", "aria-label": "cycles of a step by what they go to" }, parts.map((part) => row(part, step.cycles, most))),
    h("p", { class: step.fits ? "dim" : "bad" }, `${step.fits ? "It fits" : "It does not fit"}: ${format.bytes(step.fullest_bytes)} of ${format.bytes(step.room_bytes)} on the fullest tile.`));
}

function row(part, total, most) {
  const bar = h("i", {});
  bar.style.width = `${(100 * part.cycles) / most}%`;
  bar.style.background = COLOURS[part.name] ?? "var(--series-8)";
  return h("div.step-row", { role: "row" },
    h("span", { role: "cell" }, part.title), h("span.step-bar", { role: "presentation" }, bar),
    h("span.right", { role: "cell" }, format.percent(part.cycles / total)), h("span.right.dim", { role: "cell" }, format.short(part.cycles)));
}
