// What limits this program: the first page.

import { fill } from "abele/core/dom.js";
import { bytes, count, cycles, seconds } from "abele/core/format.js";
import { empty, figure, panel } from "abele/core/parts.js";

export function mount(context, place) {
  const show = () => {
    const { facts } = context;
    fill(place, panel("What it is", [
      figure(cycles(facts.cycles), "a run of the program"),
      figure(seconds(context.seconds(facts.cycles)), "on the modelled machine"),
      figure(count(facts.num_tiles), "tiles"),
      figure(bytes(facts.available_bytes), "on each tile"),
      figure(facts.fits ? "fits" : "does not fit", "memory", "", facts.fits ? "good" : "bad"),
    ]), empty("More is to come."));
  };
  show();
  return { update: show, destroy() {}, charts: [], commands: [] };
}
