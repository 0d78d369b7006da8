// The roofline: how fast operations compute against how much they compute for each byte, on logarithmic axes.

import { Chart } from "abele/core/chart.js";
import { short } from "abele/core/format.js";
import { hideTip, tip } from "abele/core/tip.js";

const EDGE = { left: 54, right: 12, top: 10, bottom: 30 };

/** The powers of ten around some positive values. */
export function decades(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) {
    if (!(v > 0)) continue;
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  if (!(high > 0)) return [0, 1];
  const [a, b] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high) + 1e-9)];
  return [a, Math.max(b, a + 1)];
}

/**
 * @param {{op: ArrayLike<number>, intensity: ArrayLike<number>, rate: ArrayLike<number>, cycles: ArrayLike<number>}} points
 * @param {{bandwidth: number, peaks: Array<[string, number]>, chosen: () => number, name: (op: number) => string, pick: (op: number) => void, axis: string}} how
 */
export function roofline(points, { bandwidth, peaks, chosen, name, pick, axis }) {
  const top = Math.max(...peaks.map(([, v]) => v), 1);
  const [x0, x1] = decades([...points.intensity, top / bandwidth]);
  const [y0, y1] = decades([...points.rate, top]);
  const most = points.cycles[0] || 1;
  let place = [];
  const chart = new Chart({
    label: `Roofline of ${points.op.length} operations: floating-point operations a second against operations for each byte ${axis}`,
    name: "roofline",
    draw(context, { width, height, theme }) {
      const [w, t] = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
      const x = (v) => EDGE.left + ((Math.log10(v) - x0) / (x1 - x0)) * w;
      const y = (v) => EDGE.top + (1 - (Math.log10(v) - y0) / (y1 - y0)) * t;
      context.font = "11px system-ui, sans-serif";
      context.fillStyle = theme.rule;
      for (let d = x0; d <= x1; d += 1) context.fillRect(x(10 ** d), EDGE.top, 1, t);
      for (let d = y0; d <= y1; d += 1) context.fillRect(EDGE.left, y(10 ** d), w, 1);
      context.fillStyle = theme.dim;
      context.textAlign = "center";
      for (let d = x0; d <= x1; d += 1) {
        context.fillText(d > 2 || d < -2 ? short(10 ** d) : String(10 ** d), x(10 ** d), EDGE.top + t + 13);
      }
      context.fillText(`flop for each byte ${axis}`, EDGE.left + w / 2, EDGE.top + t + 26);
      context.textAlign = "right";
      for (let d = y0; d <= y1; d += 1) {
        context.fillText(short(10 ** d), EDGE.left - 5, y(10 ** d) + 4);
      }
      context.save();
      context.beginPath();
      context.rect(EDGE.left, EDGE.top, w, t);
      context.clip();
      context.textAlign = "right";
      peaks.forEach(([title, peak], i) => {
        context.strokeStyle = i ? theme.dim : theme.accent;
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(x(10 ** x0), y(Math.max(10 ** x0 * bandwidth, 1e-9)));
        context.lineTo(x(peak / bandwidth), y(peak));
        context.lineTo(x(10 ** x1), y(peak));
        context.stroke();
        context.fillStyle = context.strokeStyle;
        context.fillText(`${title} ${short(peak)}flop/s`, x(10 ** x1) - 4, y(peak) - 4);
      });
      place = [];
      for (let i = points.op.length - 1; i >= 0; i -= 1) {
        const moves = points.intensity[i] > 0;
        // What moves nothing stands at the right edge.
        const [px, py] = [moves ? x(points.intensity[i]) : EDGE.left + w - 4, y(points.rate[i])];
        const r = 2.5 + 8 * Math.sqrt(points.cycles[i] / most);
        context.beginPath();
        context.arc(px, py, r, 0, 2 * Math.PI);
        context.globalAlpha = 0.55;
        context.fillStyle = theme.parts.compute;
        context.fill();
        context.globalAlpha = 1;
        if (points.op[i] === chosen()) {
          context.lineWidth = 2.5;
          context.strokeStyle = theme.bad;
          context.stroke();
        }
        place.push([px, py, r, i]);
      }
      context.restore();
    },
  });
  const under = (event) => {
    const box = chart.canvas.getBoundingClientRect();
    const [mx, my] = [event.clientX - box.left, event.clientY - box.top];
    return place.findLast(([px, py, r]) => (px - mx) ** 2 + (py - my) ** 2 <= (r + 2) ** 2)?.[3];
  };
  chart.canvas.addEventListener("pointermove", (event) => {
    const i = under(event);
    if (i === undefined) return hideTip();
    const reach = Math.min(top, points.intensity[i] > 0 ? points.intensity[i] * bandwidth : top);
    return tip(event, [name(points.op[i]), ["rate", `${short(points.rate[i])}flop/s`], [`flop / byte ${axis}`, points.intensity[i] > 0 ? short(points.intensity[i]) : "none moved"], ["of what the roof allows", `${((points.rate[i] / reach) * 100).toFixed(1)} %`]]);
  });
  chart.canvas.addEventListener("pointerleave", hideTip);
  chart.canvas.addEventListener("click", (event) => {
    const i = under(event);
    if (i !== undefined) pick(points.op[i]);
  });
  return chart;
}
