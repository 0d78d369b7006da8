// The modelled run of a program, beside the event on the host that is a run of it.

import { Chart } from "abele/core/chart.js";
import { fill, h } from "abele/core/dom.js";
import { seconds, short } from "abele/core/format.js";
import { empty, failure } from "abele/core/parts.js";
import { Range, steer } from "abele/core/range.js";
import { lengthText } from "abele/views/host/times.js";
import { drawAxis } from "abele/views/timeline/axis.js";
import { LanesPicture } from "abele/views/timeline/lanes.js";

const MARGIN = 8;
const PLAIN = { shape: "flat", bubbles: false, critical: false, selected: null, window: null };

export class MachineRun {
  constructor(context) {
    this.context = context;
    this.element = h("div.tdetails");
    this.chart = null;
    this.asked = 0;
  }

  redraw() {
    this.chart?.redraw();
  }

  destroy() {
    this.asked += 1;
    this.chart?.destroy();
    this.chart = null;
  }

  /** @param {any} told  the answer to "host.event"; null for none */
  async show(told) {
    this.destroy();
    const mine = this.asked;
    const program = told?.program ?? -1;
    if (program < 0) {
      fill(this.element, empty("The selected event is no run of the program.", "Select a run: its modelled timeline stands here."));
      return;
    }
    try {
      const { head } = await this.context.ask("timeline.outline", { program });
      if (mine === this.asked) this.#draw(told, program, head);
    } catch (error) {
      if (mine === this.asked) fill(this.element, failure(error));
    }
  }

  #draw(told, program, outline) {
    const { facts } = this.context;
    const range = new Range(0, outline.total, Math.min(20, outline.total));
    const context = Object.create(this.context, { program: { value: program } });
    const each = 1 / (facts.clock_hz || 1);
    const modelled = outline.total * each;
    const picture = new LanesPicture(context, outline, range, () => chart.redraw(), () => PLAIN);
    const chart = new Chart({
      label: `Modelled run: ${seconds(modelled)}, ${outline.lanes.length} lanes`, name: "machine",
      draw: (pen, size) => {
        drawAxis(pen, { low: range.low, high: range.high, left: picture.left, width: size.width - picture.left - MARGIN, height: size.height, theme: size.theme, seconds: each });
        picture.draw(pen, size);
      },
    });
    range.addEventListener("change", () => chart.redraw());
    steer(chart.canvas, range, () => ({ left: picture.left, width: chart.width - picture.left - MARGIN }));
    this.chart = chart;
    fill(this.element, h("div.tcolumn.grow.tbelow", {},
      h("div.bar", {}, h("b", {}, `One run of ${facts.programs[program] || `program ${program}`} on the modelled machine: ${seconds(modelled)}`),
        h("span.dim", {}, told.cycles > 0 && modelled > 0 ? `the event took ${lengthText(told.cycles)} on the host: ${short(told.cycles / 1e9 / modelled)} times as long` : ""), h("span.grow"),
        h("button.small", { onclick: () => this.context.go("timeline", { program }) }, "timeline")),
      chart.element));
  }
}
