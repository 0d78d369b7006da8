// What the rows of the host's picture are: sources, processes, threads with their events, graphs of numbers, heat maps.

const HEAD = 20;
const EVENT = 15;
const GRAPH = 62;
const HEAT = 72;
const SHUT = 16;
const MOST_DEPTH = 24;

/**
 * Rows in the order in which they are shown: pinned ones first.
 * @param {any} outline  the answer to host.outline
 * @param {{shut: Set<string>, pinned: Set<string>, merged: boolean}} how
 * @returns {Array<{key: string, kind: string, title: string, note: string, height: number, level: number, [more: string]: any}>}
 */
export function rowsOf(outline, { shut, pinned, merged }) {
  const rows = [];
  outline.sources.forEach((source, s) => {
    source.processes.forEach((process, p) => {
      const threads = source.threads.filter((thread) => thread.process === p && (thread.events || thread.instants));
      const series = source.series.map((each, i) => ({ ...each, i })).filter((each) => each.process === p && each.points);
      const heat = source.heatmaps.map((each, i) => ({ ...each, i })).filter((each) => each.process === p && each.rows);
      if (!threads.length && !series.length && !heat.length) return;
      const key = `s${s}p${p}`;
      rows.push({ key, kind: "head", title: process.name || `process ${process.id}`, note: process.file, height: HEAD, level: 0, source: s });
      const inside = [];
      for (const each of heat) inside.push({ key: `${key}h${each.i}`, kind: "heat", title: each.name, note: each.unit, height: HEAT, level: 1, source: s, heatmap: each.i, data: each });
      const graphs = new Map();
      for (const each of series) {
        const name = merged ? "all series" : each.graph || each.name;
        if (!graphs.has(name)) graphs.set(name, []);
        graphs.get(name).push(each);
      }
      for (const [name, list] of graphs) inside.push({ key: `${key}g${name}`, kind: "graph", title: name, note: list.map((each) => each.name).join(", "), height: GRAPH, level: 1, source: s, series: list, scaled: merged });
      for (const thread of threads) {
        const depth = Math.min(Math.max(thread.depth, 1), MOST_DEPTH);
        inside.push({ key: `${key}t${thread.thread}`, kind: "thread", title: thread.name || `thread ${thread.id}`, note: "", height: depth * EVENT + (thread.instants ? 12 : 0) + 4, level: 1, source: s, thread: thread.thread, depth, instants: thread.instants, events: thread.events });
      }
      const isShut = shut.has(key);
      rows.push(...inside.filter((row) => !isShut || pinned.has(row.key)).map((row) => (shut.has(row.key) ? { ...row, shut: true, height: SHUT } : row)));
    });
  });
  return [...rows.filter((row) => pinned.has(row.key)).map((row) => ({ ...row, pinned: true })), ...rows.filter((row) => !pinned.has(row.key))];
}

/** Tops of rows below the axis, after scrolling; pinned rows stay. */
export function placed(rows, axis, height, scroll) {
  let y = axis;
  const found = [];
  for (const row of rows.filter((each) => each.pinned)) {
    found.push({ ...row, top: y });
    y += row.height + 3;
  }
  const held = y;
  const moving = rows.filter((each) => !each.pinned);
  const tall = moving.reduce((sum, row) => sum + row.height + 3, 0);
  const room = height - held;
  const at = Math.min(Math.max(scroll, 0), Math.max(tall - room, 0));
  y = held - at;
  for (const row of moving) {
    found.push({ ...row, top: y });
    y += row.height + 3;
  }
  return { rows: found, held, tall, scroll: at };
}

export const SIZES = { HEAD, EVENT, SHUT };
