// Operations below the roofs of the machine, and in words which of them lie under which.

import { h } from "abele/core/dom.js";
import { percent } from "abele/core/format.js";
import { roofline } from "abele/views/roofline.js";

/** The roofs of the insights of a program, which `show` hands over. */
export function roofs(context) {
  let shown = null;
  const data = () => ({
    points: shown.ops.filter((op) => op.flops_per_second > 0).map((op) => ({
      op: op.op, title: op.title, intensity: op.intensity, rate: op.flops_per_second, cycles: op.cycles, part: op.bound,
      lines: [["of its own roof", percent(op.reached)], ["bound by", op.bound], ...(op.where ? [["made at", `${op.where.file}:${op.where.line}`]] : [])],
    })).sort((a, b) => b.cycles - a.cycles),
    bandwidth: shown.exchange_bytes_per_second, axis: "exchanged",
    peaks: [["float8", shown.f8_flops_per_second], ["float16", shown.f16_flops_per_second], ["float32", shown.f32_flops_per_second]].filter(([, peak]) => peak > 0),
  });
  const chart = roofline({ data, pick: (op) => context.go("operations", { op }), height: 230 });
  const note = h("p.dim");
  return {
    chart,
    element: h("div", {}, chart.element, note),
    show(found) {
      shown = found;
      const by = (bound) => found.ops.filter((op) => op.bound === bound).length;
      const best = [...found.ops].sort((a, b) => b.reached - a.reached)[0];
      note.textContent = best
        ? `${by("compute")} operations lie under the compute roof, ${by("exchange")} under the exchange roof. Closest to its roof: ${best.title}, ${percent(best.reached)}.`
        : "";
      chart.describe(`Roofline: ${note.textContent}`);
      chart.redraw();
    },
  };
}
