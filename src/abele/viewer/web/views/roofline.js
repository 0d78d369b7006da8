// The roofline: how fast operations compute against how much they compute for each byte, below the roofs of the machine.

import { Chart } from "abele/core/chart.js";
import { percent, short } from "abele/core/format.js";
import { decades, logAxes } from "abele/core/log_axis.js";
import { shared, shortened } from "abele/core/names.js";
import { placed } from "abele/core/place.js";
import { hideTip, tip } from "abele/core/tip.js";

const EDGE = { left: 54, right: 12, top: 8, bottom: 34 };
const NEAR = 12;
const NAMED = 5;
const LINE = 14;
const WIDEST = 190;
/** Below a roof, else above it. */
const OF_ROOFS = [[0, 1], [0, -1], [-1, 1], [-1, -1]];

/** What the roof over an operation allows, FLOP/s; one that moves nothing has the flat part over it. */
export function roofOver(intensity, bandwidth, peak) {
  return intensity > 0 ? Math.min(peak, intensity * bandwidth) : peak;
}

/**
 * @typedef {{op: number, title: string, intensity: number, rate: number, cycles: number, part?: string, lines?: Array<[string, string]>}} Point
 *   intensity in FLOP for each byte, 0 for none moved; rate in FLOP/s; part: what bounds it, by whose colour it is drawn; lines: more of its tip
 * @param {object} how
 * @param {() => {points: Point[], bandwidth: number, peaks: Array<[string, number]>, axis: string}} how.data  points with most cycles first;
 *   bandwidth in bytes/s; roofs by name in FLOP/s; axis: which bytes
 * @param {(op: number) => void} how.pick
 * @param {() => number} [how.chosen]
 * @param {number} [how.height]  CSS pixels; else as tall as the box around it
 */
export function roofline({ data, pick, chosen = () => NaN, height }) {
  let spots = [];
  const chart = new Chart({ label: "Roofline", name: "roofline", height, draw });

  function draw(pen, { width, height: tall, theme }) {
    const { points, bandwidth, peaks, axis } = data();
    const box = { left: EDGE.left, top: EDGE.top, width: Math.max(1, width - EDGE.left - EDGE.right), height: Math.max(1, tall - EDGE.top - EDGE.bottom) };
    const highest = Math.max(0, ...peaks.map(([, peak]) => peak));
    const { x, y, ends, draw: grid } = logAxes(decades([...points.map((p) => p.intensity), highest / bandwidth]), decades([...points.map((p) => p.rate), highest]), box);
    const right = box.left + box.width;
    grid(pen, theme, `FLOP for each byte ${axis}`);
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.width, box.height);
    pen.clip();
    peaks.forEach(([, peak], i) => {
      const bend = Math.min(Math.max(peak / bandwidth, ends[0]), ends[1]);
      pen.strokeStyle = theme.ink;
      pen.lineWidth = 1.25;
      pen.setLineDash(i ? [5, 3] : []);
      pen.beginPath();
      pen.moveTo(x(ends[0]), y(ends[0] * bandwidth));
      pen.lineTo(x(bend), y(peak));
      pen.lineTo(x(ends[1]), y(peak));
      pen.stroke();
      pen.setLineDash([]);
    });
    const most = Math.max(points[0]?.cycles ?? 0, 1);
    spots = [];
    for (let i = points.length - 1; i >= 0; i -= 1) {
      const point = points[i];
      // What moves nothing stands at the right edge.
      const [px, py] = [point.intensity > 0 ? x(point.intensity) : right - 4, y(point.rate)];
      const radius = 2.5 + 8 * Math.sqrt(Math.min(1, point.cycles / most));
      pen.globalAlpha = 0.65;
      pen.fillStyle = theme.parts[point.part] ?? theme.parts.compute;
      pen.beginPath();
      pen.arc(px, py, radius, 0, 2 * Math.PI);
      pen.fill();
      pen.globalAlpha = 1;
      if (point.op === chosen()) {
        pen.lineWidth = 2.5;
        pen.strokeStyle = theme.bad;
        pen.stroke();
      }
      spots.push([px, py, radius, point]);
    }
    pen.restore();
    name(pen, theme, box, peaks.map(([title, peak]) => [`${title} ${short(peak)}FLOP/s`, y(peak)]));
    if (!points.length) {
      pen.textAlign = "center";
      pen.fillStyle = theme.dim;
      pen.fillText("No operation of this report counts floating-point operations.", box.left + box.width / 2, box.top + box.height / 2);
    }
  }

  /** Names of roofs and of the points with most cycles, none over another. */
  function name(pen, theme, box, roofs) {
    const width = (text) => pen.measureText(text).width;
    const common = shared(spots.map(([, , , point]) => point.title));
    const texts = [
      ...roofs.map(([text, py]) => ({ text, x: box.left + box.width - width(text) / 2 - 3, y: py, radius: 0, colour: theme.dim, sides: OF_ROOFS })),
      ...spots.slice(-NAMED).reverse().map(([x, y, radius, point]) => ({ text: shortened(point.title, common, width, Math.min(WIDEST, box.width / 2)), x, y, radius, colour: theme.ink })),
    ].map((label) => ({ ...label, width: width(label.text), height: LINE }));
    pen.textAlign = "left";
    pen.lineWidth = 0.75;
    chart.labels = placed(texts, box, spots.map(([x, y, radius]) => [x, y, radius]));
    chart.labels.forEach((place, i) => {
      if (!place) return;
      if (place.isLed) {
        pen.strokeStyle = theme.dim;
        pen.beginPath();
        pen.moveTo(...place.from);
        pen.lineTo(...place.to);
        pen.stroke();
      }
      pen.fillStyle = texts[i].colour;
      pen.fillText(texts[i].text, place.left, place.top + LINE / 2);
    });
  }

  function nearest(event) {
    const [mx, my] = chart.at(event);
    let [found, least] = [null, NEAR];
    for (const [px, py, radius, point] of spots) {
      const away = Math.hypot(px - mx, py - my) - radius;
      if (away <= least) [least, found] = [away, point];
    }
    return found;
  }

  chart.canvas.addEventListener("pointermove", (event) => {
    const point = nearest(event);
    chart.canvas.style.cursor = point ? "pointer" : "";
    if (!point) return hideTip();
    const { bandwidth, peaks, axis } = data();
    const roof = roofOver(point.intensity, bandwidth, Math.max(0, ...peaks.map(([, peak]) => peak)));
    return tip(event, [point.title, ["cycles per run", short(point.cycles)], ["reaches", `${short(point.rate)}FLOP/s`], ["of the highest roof", percent(point.rate / roof)],
      [`FLOP for each byte ${axis}`, point.intensity > 0 ? short(point.intensity) : "none moved"], ...(point.lines ?? [])]);
  });
  chart.canvas.addEventListener("pointerleave", hideTip);
  chart.canvas.addEventListener("click", (event) => {
    const point = nearest(event);
    if (point) pick(point.op);
  });
  return chart;
}
