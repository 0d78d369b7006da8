// What a step takes in joules: a bar of what uses them, and a table with the bounds and the source of each figure.

import { h } from "abele/core/dom.js";
import { bytes, count, joules, percent, prefixed, seconds, short } from "abele/core/format.js";
import { failure, figure, legend, panel, shares } from "abele/core/parts.js";
import { theme } from "abele/core/theme.js";

/**
 * @typedef {{least: number, likely: number, most: number}} Range
 * @typedef {{name: string, amount: number, unit: string, joules_each: Range, joules: Range, source: {text: string, confidence: string}}} Term
 */

const watts = (value) => prefixed(value, [[1e6, "MW"], [1e3, "kW"], [1, "W"], [1e-3, "mW"], [1e-6, "µW"]]);
const between = (range, show) => `between ${show(range.least)} and ${show(range.most)}`;

/**
 * @param {{energy: object|null, confidence: Object<string, string>, error?: Error}} told
 * @param {number} program  the one that is shown; energies are of program 0
 * @param {string} unit  of bytes
 * @returns {HTMLElement|null}  null where the report does not know the energies of its machine
 */
export function energyPanel(told, program, unit) {
  if (told.error) return panel("Energy of a step", failure(told.error));
  const { energy } = told;
  if (!energy || program !== 0) return null;
  const terms = [...energy.terms].sort((a, b) => b.joules.likely - a.joules.likely);
  const colours = theme().series;
  const entries = terms.map((term, i) => [colours[i % colours.length], term.name, term.joules.likely]);
  const whole = energy.joules.likely || 1;
  return panel("Energy of a step", [
    h("div.figures", {}, ...headlines(energy)),
    h("div.summary-bar", {},
      h("span.dim", {}, "joules"), shares(entries, whole),
      h("span", {}), legend(entries.map(([colour, name, likely]) => [colour, `${name} ${percent(likely / whole)}`]))),
    terms.length ? table(terms, energy, colours, unit) : h("p.dim", {}, "Nothing that is counted takes energy."),
    ...notes(energy, told.confidence, terms, unit),
  ]);
}

function headlines(energy) {
  const { joules: step, joules_per_sample: each, watts: power, rated_watts: rated, rated_source: source } = energy;
  const over = power.most > rated * energy.num_ipus;
  return [
    figure(joules(step.likely), `dynamic, ${between(step, joules)}`),
    each ? figure(joules(each.likely), `per sample, ${between(each, joules)}`) : null,
    energy.seconds ? figure(watts(power.likely), `mean power, ${between(power, watts)}`, over ? "The most is more than the rated power: synthetic data at full rate, or guessed energies too high." : "", over ? "warn" : "") : null,
    energy.seconds ? figure(joules(energy.rated_joules), `at the rated ${watts(rated)} of ${count(energy.num_ipus)} IPU${energy.num_ipus === 1 ? "" : "s"} for ${seconds(energy.seconds)}`, source) : null,
  ];
}

/** One row for each use, largest first, and the sum. */
function table(terms, energy, colours, unit) {
  const most = Math.max(...terms.map((term) => term.joules.most), Number.MIN_VALUE);
  const heads = ["use", "likely", "share", "least", "most", "bounds", "amount", "energy of one", "source"];
  const whole = energy.joules.likely || 1;
  return h("div.energy-scroll", { tabindex: "0", role: "region", "aria-label": "Energy by use" }, h("table.energy", {},
    h("caption", {}, "Dynamic energy of a step by what uses it, with bounds and the source of each figure"),
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, terms.map((term, i) => {
      const { least, likely, most: high } = term.joules;
      return h("tr", {},
        h("th", { scope: "row" }, mark(colours[i % colours.length]), term.name),
        h("td.number", {}, joules(likely)), h("td.number", {}, percent(likely / whole)),
        h("td.number", {}, joules(least)), h("td.number", {}, joules(high)),
        h("td", {}, span(term.joules, most, colours[i % colours.length])),
        h("td.number", {}, term.unit === "B" ? bytes(term.amount, unit) : `${short(term.amount)} ${term.unit}`),
        h("td.number", {}, `${joules(term.joules_each.likely)}/${term.unit}`),
        h("td.energy-source", {}, h("abbr", { title: term.source.text }, term.source.confidence), " ", term.source.text));
    })),
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "dynamic energy"),
      h("td.number", {}, joules(energy.joules.likely)), h("td.number", {}, ""),
      h("td.number", {}, joules(energy.joules.least)), h("td.number", {}, joules(energy.joules.most)), h("td", { colspan: "4" })))));
}

function mark(colour) {
  const box = h("i.energy-mark", { "aria-hidden": "true" });
  box.style.background = colour;
  return box;
}

/** A bar from the least to the most on the scale of all rows, with a stroke at what is likely. */
function span(range, whole, colour) {
  const place = (value) => `${(value / whole) * 100}%`;
  const reach = h("i");
  reach.style.left = place(range.least);
  reach.style.width = place(range.most - range.least);
  reach.style.background = colour;
  const likely = h("b");
  likely.style.left = place(range.likely);
  return h("div.energy-span", { role: "img", "aria-label": `likely ${joules(range.likely)}, ${between(range, joules)}` }, reach, likely);
}

function notes(energy, confidence, terms, unit) {
  const marks = [...new Set([...terms.map((term) => term.source.confidence), energy.rated_source.split(":", 1)[0]])].sort();
  const said = marks.filter((each) => confidence[each]).map((each) => `${each}: ${confidence[each]}`).join(" · ");
  const others = Object.entries(energy.joules_from).map(([name, value]) => `${name} ${joules(value)}`).join(" · ");
  const uncounted = energy.uncounted_proportion;
  return [
    energy.touched_bytes ? h("p.dim", {}, `The ${bytes(energy.touched_bytes, unit)} of variables read and written, from other memories: ${others}.`) : null,
    h("p.dim", {}, uncounted ? `Not in it: arithmetic of operations that nobody counts (${percent(uncounted)} of the compute cycles), ` : "Not in it: ",
      "leakage, clocks, instructions, fans, power supplies and the host's processors. Rated: ", energy.rated_source, "."),
    h("p.dim", {}, said),
  ];
}
