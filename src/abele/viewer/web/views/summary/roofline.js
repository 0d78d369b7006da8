// Operations below the roofs of the machine: work for each exchanged byte against what is reached, both logarithmic.

import { Chart } from "abele/core/chart.js";
import { h } from "abele/core/dom.js";
import { fitted, percent, short } from "abele/core/format.js";
import { tip, hideTip } from "abele/core/tip.js";

const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 34;
const NEAR = 12;

/** The ends of a logarithmic axis that holds some values: whole powers of ten. */
export function decades(values) {
  const held = values.filter((v) => v > 0 && Number.isFinite(v));
  if (!held.length) return [0, 1];
  const low = Math.floor(Math.log10(Math.min(...held)));
  return [low, Math.max(Math.ceil(Math.log10(Math.max(...held))), low + 1)];
}

export function roofline(context) {
  let shown = { ops: [] };
  let spots = [];
  const chart = new Chart({ label: "Operations below the roofs of the machine", name: "roofline", height: 230, draw });
  const note = h("p.dim");
  const element = h("div", {}, chart.element, note);

  function draw(pen, { width, height, theme }) {
    const ops = shown.ops.filter((op) => op.flops_per_second > 0);
    const sending = ops.filter((op) => op.intensity > 0);
    const ridge = shown.f16_flops_per_second / shown.exchange_bytes_per_second;
    const [x0, x1] = decades([...sending.map((op) => op.intensity), ridge]);
    const [y0, y1] = decades([...ops.map((op) => op.flops_per_second), shown.f16_flops_per_second]);
    const [w, t] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
    const px = (v) => LEFT + ((Math.log10(v) - x0) / (x1 - x0)) * w;
    const py = (v) => TOP + t - ((Math.log10(v) - y0) / (y1 - y0)) * t;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (let d = x0; d <= x1; d += 1) line(pen, theme.rule, px(10 ** d), TOP, px(10 ** d), TOP + t);
    for (let d = y0; d <= y1; d += 1) line(pen, theme.rule, LEFT, py(10 ** d), LEFT + w, py(10 ** d));
    pen.fillStyle = theme.dim;
    pen.textAlign = "right";
    for (let d = y0; d <= y1; d += Math.ceil((y1 - y0) / 6)) pen.fillText(short(10 ** d), LEFT - 5, py(10 ** d));
    pen.textAlign = "center";
    for (let d = x0; d <= x1; d += Math.ceil((x1 - x0) / 6)) pen.fillText(short(10 ** d), px(10 ** d), TOP + t + 10);
    pen.fillText("operations for each exchanged byte", LEFT + w / 2, TOP + t + 25);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP, w, t);
    pen.clip();
    for (const [name, peak, dash] of [["f16", shown.f16_flops_per_second, []], ["f32", shown.f32_flops_per_second, [5, 3]]]) {
      if (!(peak > 0)) continue;
      const bend = Math.min(Math.max(peak / shown.exchange_bytes_per_second, 10 ** x0), 10 ** x1);
      pen.strokeStyle = theme.ink;
      pen.lineWidth = 1.25;
      pen.setLineDash(dash);
      pen.beginPath();
      pen.moveTo(px(10 ** x0), py(10 ** x0 * shown.exchange_bytes_per_second));
      pen.lineTo(px(bend), py(peak));
      pen.lineTo(px(10 ** x1), py(peak));
      pen.stroke();
      pen.setLineDash([]);
      pen.fillStyle = theme.dim;
      pen.textAlign = "right";
      pen.fillText(`${name} ${short(peak)}`, LEFT + w - 3, py(peak) + 8);
    }
    spots = [];
    const most = Math.max(...ops.map((op) => op.cycles), 1);
    for (const op of [...ops].reverse()) {
      const x = op.intensity > 0 ? px(op.intensity) : LEFT + w - 4;
      const y = py(op.flops_per_second);
      const r = 2.5 + 9 * Math.sqrt(op.cycles / most);
      pen.globalAlpha = 0.75;
      pen.fillStyle = theme.parts[op.bound] ?? theme.accent;
      pen.beginPath();
      pen.arc(x, y, r, 0, Math.PI * 2);
      pen.fill();
      pen.globalAlpha = 1;
      spots.push([x, y, r, op]);
    }
    pen.restore();
    const named = spots.slice(-3);
    pen.textAlign = "left";
    pen.fillStyle = theme.ink;
    for (const [x, y, r, op] of named) pen.fillText(fitted(pen, op.title.split("/").slice(-2).join("/"), Math.min(150, LEFT + w - x - r - 4)), x + r + 3, y);
    if (!ops.length) {
      pen.textAlign = "center";
      pen.fillStyle = theme.dim;
      pen.fillText("no operation computes numbers that are counted", LEFT + w / 2, TOP + t / 2);
    }
  }

  function line(pen, colour, x0, y0, x1, y1) {
    pen.strokeStyle = colour;
    pen.lineWidth = 0.5;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  }

  function nearest(event) {
    const box = chart.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let found = null;
    let least = NEAR;
    for (const [sx, sy, r, op] of spots) {
      const away = Math.hypot(sx - x, sy - y) - r;
      if (away < least) [least, found] = [away, op];
    }
    return found;
  }

  chart.canvas.addEventListener("pointermove", (event) => {
    const op = nearest(event);
    chart.canvas.style.cursor = op ? "pointer" : "";
    if (!op) {
      hideTip();
      return;
    }
    tip(event, [op.title, ["cycles of a run", short(op.cycles)], ["operations a second", short(op.flops_per_second)], ["of its roof", percent(op.reached)],
      ["bound by", op.bound], ["operations / byte", op.intensity ? short(op.intensity) : "sends nothing"], ...(op.where ? [["made at", `${op.where.file}:${op.where.line}`]] : [])]);
  });
  chart.canvas.addEventListener("pointerleave", hideTip);
  chart.canvas.addEventListener("click", (event) => {
    const op = nearest(event);
    if (op) context.go("operations", { op: op.op });
  });

  return {
    element,
    chart,
    show(roofs) {
      shown = roofs;
      const by = (bound) => roofs.ops.filter((op) => op.bound === bound).length;
      const best = [...roofs.ops].sort((a, b) => b.reached - a.reached)[0];
      note.textContent = best
        ? `${by("compute")} operations lie under the compute roof, ${by("exchange")} under the exchange roof. Closest to its roof: ${best.title}, ${percent(best.reached)}.`
        : "";
      chart.describe(`Roofline: ${note.textContent}`);
      chart.redraw();
    },
  };
}
