// What limits this program: where the cycles of a step go, the costs that matter and what would help, and what fills the
// fullest tile. The reasoning is the report's (abele.report.insights); here it is shown.

import { fill, h } from "abele/core/dom.js";
import { bytes, count, cycles, percent, seconds, short } from "abele/core/format.js";
import { partTitle } from "abele/core/part_titles.js";
import { failure, figure, legend, panel, shares } from "abele/core/parts.js";
import { theme } from "abele/core/theme.js";
import { energyPanel } from "abele/views/summary/energy.js";
import { roofs } from "abele/views/summary/roofline.js";

const PARTS = ["compute", "exchange", "sync", "host"];
const LEAST = 0.001;
/** Below this part of a tile, what fills it is no cost. */
const FULL = 0.5;
const CATEGORIES = ["variables", "temporaries", "vertex_state", "vertex_code", "control_code", "exchange_code", "stacks", "stream_buffers", "gaps"];

export async function mount(context, place) {
  const roofed = roofs(context);
  let found = null;
  let energy = null;
  let waits = 0;
  const show = async (ask = true) => {
    waits += 1;
    const mine = waits;
    if (ask) {
      const [insights, joules] = await Promise.all([
        context.ask("insights", { program: context.program }),
        // A report whose energies are damaged still says the rest.
        context.ask("energy", {}).catch((error) => ({ head: { error } })),
      ]);
      if (mine !== waits) return;
      [found, energy] = [insights.head, joules.head];
    }
    roofed.show(found.roofline);
    fill(place,
      headlines(context, found),
      h("div.summary-rows", {},
        h("div", {}, panel("The costs that matter", costs(context, found.costs, "cycles"))),
        h("div", {}, memory(context, found), found.roofline.ops.some((op) => op.flops_per_second > 0) ? panel("Operations below the roofs of the machine", roofed.element) : null)),
      energyPanel(energy, context.program, context.state.get("unit", "auto")),
      found.notes.length ? panel("What these figures do not know", found.notes.map((note) => h("p", {}, note))) : null,
      ...facts(context));
  };
  await show();
  return {
    update(changed) {
      if (changed.has("theme")) show(false);
      else if (["unit", "reports", "program"].some((n) => changed.has(n))) show().catch((error) => fill(place, failure(error)));
    },
    destroy() {
      waits += 1;
      roofed.chart.destroy();
    },
    charts: [roofed.chart],
    commands: [],
  };
}

function headlines(context, found) {
  const colours = theme().parts;
  const { parts, step, step_seconds: time } = found.cycles;
  const { step_name: name, steps_per_run: steps } = found.program;
  const sum = PARTS.reduce((total, part) => total + (parts[part] ?? 0), 0);
  const whole = Math.max(sum, step, 1);
  const entries = PARTS.map((part) => [colours[part], partTitle(part), parts[part] ?? 0]);
  const rate = context.facts.meta.samples_per_run ? context.facts.meta.samples_per_run / (time * steps) : null;
  const unit = context.state.get("unit", "auto");
  const { memory } = found;
  const loader = parts.loader ? [h("span.dim", {}, "loader"), h("span", {}, `${cycles(parts.loader)} per ${name} in which the device waits for batches`)] : [];
  return h("section.panel", { "aria-label": "What limits this program" },
    h("p.summary-limit", {}, found.limit),
    h("div.figures", {},
      figure(seconds(time), `per ${name || "run"}, modelled`),
      figure(short(step), `cycles per ${name || "run"}`),
      steps > 1 ? figure(count(steps), `${name}s per run`) : null,
      rate ? figure(short(rate), `${context.facts.meta.sample_name ?? "samples"} per second`) : null,
      figure(percent(found.balance.tile_balance), "tile balance", "mean tile / slowest tile while computing", found.balance.tile_balance < 0.5 ? "warn" : ""),
      figure(`${count(found.balance.active_tiles)} of ${count(found.balance.num_tiles)}`, "tiles compute"),
      figure(memory.fits ? bytes(memory.headroom_bytes, unit) : `−${bytes(memory.largest_excess_bytes, unit)}`, memory.fits ? "head-room of the fullest tile" : `too much; ${count(memory.tiles_too_full)} tiles too full`, "", memory.fits ? "" : "bad")),
    h("div.summary-bar", {},
      h("span.dim", {}, "cycles"), shares(entries, whole),
      h("span", {}), legend(entries.filter(([, , v]) => v > 0).map(([colour, title, v]) => [colour, `${title} ${percent(v / whole)} · ${short(v)}`])),
      ...(parts.hidden > 0 ? [h("span.dim", {}, "hidden"), h("span", {}, `${cycles(parts.hidden)} go on beside others and are no part of the time`)] : []),
      ...loader));
}

/** A list of costs with their reasons and levers. */
function costs(context, list, measure) {
  if (!list.length) return h("p.dim", {}, "Nothing costs anything.");
  return h("div", { role: "list" }, list.map((cost) => {
    const open = () => context.go(cost.links.view in { tiles: 1 } ? "memory" : cost.links.view, selection(cost));
    return h("div.cost", { role: "listitem" },
      h("div.cost-share", {}, percent(cost.cost.share), h("small", {}, measure === "cycles" && cost.cost.cycles ? short(cost.cost.cycles) : bytes(cost.cost.bytes, context.state.get("unit", "auto")))),
      h("div", {},
        h("div.cost-head", {}, h("button.cost-title", { onclick: open, title: "Show it" }, cost.title),
          cost.where ? h("span.cost-where", {}, cost.where.line ? `${cost.where.file}:${cost.where.line}` : cost.where.file) : null),
        h("div", {}, sentence(cost.reason)),
        cost.levers.map((lever) => h("div.lever", { title: lever.assumption ? `if ${lever.assumption}` : "" },
          h("b", {}, gain(context, lever)), h("span", {}, lever.title, lever.changes_numbers ? h("span.dim", {}, " · changes numbers") : null)))));
  }));
}

function gain(context, lever) {
  const most = lever.at_most ? "≤ " : "";
  if (lever.gain_cycles) {
    const part = lever.gain_cycles / Math.max(context.facts.cycles, 1);
    return part < LEAST ? `< ${percent(LEAST)}` : `${most}${percent(part)}`;
  }
  if (lever.gain_bytes) return `${most}${bytes(lever.gain_bytes, context.state.get("unit", "auto"))}`;
  return "?";
}

function sentence(text) {
  return text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "";
}

/** The names of the page's selection, from a cost's. */
function selection(cost) {
  const { op, step, variable, tile } = cost.links.select;
  return { op: op ?? null, step: step ?? null, variable: variable ?? null, tiles: tile ?? null };
}

function memory(context, found) {
  const { memory: held } = found;
  const colours = theme().series;
  const unit = context.state.get("unit", "auto");
  const entries = CATEGORIES.map((name, i) => [colours[i], name.replaceAll("_", " "), held.categories[name] ?? 0]).filter(([, , size]) => size > 0);
  const whole = Math.max(held.available_bytes, held.bytes, 1);
  return panel("Memory of the fullest tile", [
    h("p", {}, h("button.cost-title", { onclick: () => context.go("memory", { tiles: held.tile }) }, `Tile ${count(held.tile)}`),
      ` holds ${bytes(held.bytes, unit)} of ${bytes(held.available_bytes, unit)} (${percent(held.bytes / Math.max(held.available_bytes, 1))}); the mean tile ${bytes(held.mean_bytes, unit)}.`),
    shares(entries, whole),
    legend(entries.map(([colour, title, size]) => [colour, `${title} ${bytes(size, unit)}`])),
    held.bytes > FULL * held.available_bytes ? costs(context, found.memory_costs.slice(0, 3), "bytes") : null,
  ]);
}

/** Target, graph, versions and options: what a report is of. */
function facts(context) {
  const { target, graph, meta, rows } = context.facts;
  const list = (entries) => h("div.facts", {}, entries.map(([name, value]) => h("div.fact", {}, h("span.dim", {}, name), h("span", {}, value))));
  const words = (name) => name.replaceAll("_", " ");
  const folded = (title, name, content) => {
    const key = `summary.${name}`;
    return h("details.panel", { open: context.state.get(key) === "open", ontoggle: (e) => context.state.set({ [key]: e.target.open ? "open" : null }) }, h("summary", {}, title), content);
  };
  const flat = (held, before = "") => Object.entries(held ?? {}).flatMap(([name, value]) => value !== null && typeof value === "object" && !Array.isArray(value)
    ? flat(value, `${before}${words(name)} · `)
    : [[before + words(name), shown(value)]]);
  const few = Object.fromEntries(Object.entries(meta).filter(([name]) => !["options", "programs", "figures_of"].includes(name)));
  const runs = meta.figures_of ? Object.entries(meta.figures_of).map(([i, of]) => [`figures of program ${i}`, String(of)]) : [];
  return [
    folded("Target", "target", list(flat(target))),
    folded("Graph and tables", "graph", list([...flat(graph), ...Object.entries(rows).map(([name, n]) => [`rows of ${name}`, count(n)])])),
    folded("Program, version and runs", "meta", list([...flat(few), ...runs])),
    meta.options && Object.keys(meta.options).length ? folded("Options", "options", list(flat(meta.options))) : null,
  ];
}

function shown(value) {
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(6)));
  if (Array.isArray(value)) return value.map((v) => (typeof v === "object" ? JSON.stringify(v) : String(v))).join(", ").slice(0, 2000) || "–";
  return value === null || value === "" ? "–" : String(value).slice(0, 2000);
}
