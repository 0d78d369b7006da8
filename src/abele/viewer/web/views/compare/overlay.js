// Curves of several reports, one over the other: memory and compute by tile, fullest first, and live bytes step by step.

import { Chart } from "abele/core/chart.js";
import { fill, h } from "abele/core/dom.js";
import { bytes, count, marks, short } from "abele/core/format.js";
import { legend } from "abele/core/parts.js";
import { theme } from "abele/core/theme.js";

const CURVES = [
  ["memory", "bytes on a tile, fullest first", "tiles"],
  ["compute", "compute cycles of a tile, most first", "tiles"],
  ["live", "bytes live at a step", "steps"],
];
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 8, 8, 32];

export function overlay(context) {
  let answers = [];
  let titles = [];
  const charts = CURVES.map(([name, title, of]) => new Chart({ label: title, name: `compare-${name}`, height: 190, draw: (pen, place) => draw(pen, place, name, title, of) }));
  const key = h("div");
  const element = h("div", {}, h("div.columns", {}, charts.map((chart) => h("div", {}, chart.element))), key);

  function draw(pen, { width, height, theme: colours }, name, title, of) {
    const [w, t] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
    const longest = Math.max(1, ...answers.map((a) => a.head.counts[name]));
    const limit = name === "memory" ? Math.max(0, ...answers.map((a) => a.head.available_bytes)) : 0;
    const highest = Math.max(1, limit, ...answers.map((a) => a.arrays[name].reduce((m, v) => Math.max(m, v), 0)));
    const show = name === "compute" ? short : (v) => bytes(v, context.state.get("unit", "auto"));
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const mark of marks(0, highest, 4).marks) {
      const y = TOP + t - (mark / highest) * t;
      pen.fillStyle = colours.rule;
      pen.fillRect(LEFT, y, w, 0.75);
      pen.fillStyle = colours.dim;
      pen.fillText(show(mark), LEFT - 5, y);
    }
    pen.textAlign = "center";
    pen.fillStyle = colours.dim;
    for (const mark of marks(0, longest, 5).marks) pen.fillText(count(mark), LEFT + (mark / longest) * w, TOP + t + 9);
    pen.fillText(`${of}: ${title}`, LEFT + w / 2, TOP + t + 23);
    answers.forEach(({ head, arrays }, i) => {
      const values = arrays[name];
      if (!values.length) return;
      const each = (head.counts[name] / values.length / longest) * w;
      pen.strokeStyle = colours.series[i];
      pen.lineWidth = 1.6;
      pen.setLineDash(i % 2 ? [6, 3] : []);
      pen.beginPath();
      for (let k = 0; k < values.length; k += 1) {
        const y = TOP + t - (values[k] / highest) * t;
        pen.lineTo(LEFT + k * each, y);
        pen.lineTo(LEFT + (k + 1) * each, y);
      }
      pen.stroke();
    });
    pen.setLineDash([]);
    if (limit) {
      pen.fillStyle = colours.bad;
      pen.fillRect(LEFT, TOP + t - (limit / highest) * t, w, 1);
    }
  }

  return {
    element,
    charts,
    async show(keys) {
      answers = await Promise.all(keys.map((k) => context.source.ask(k, "curves")));
      titles = keys.map((k) => context.title(k));
      const peak = (a, name) => a.arrays[name].reduce((m, v) => Math.max(m, v), 0);
      charts.forEach((chart, c) => {
        chart.describe(`${CURVES[c][1]}: ${answers.map((a, i) => `${titles[i]} at most ${short(peak(a, CURVES[c][0]))}`).join(", ")}`);
        chart.redraw();
      });
      fill(key, legend(titles.map((title, i) => [theme().series[i], title])));
    },
    destroy() {
      for (const chart of charts) chart.destroy();
    },
  };
}
