// What happened on the host, beside the machine.

import { fill } from "abele/core/dom.js";
import { empty } from "abele/core/parts.js";

export function mount(context, place) {
  fill(place, empty("This view is not there yet."));
  return { update() {}, destroy() {}, charts: [], commands: [] };
}
