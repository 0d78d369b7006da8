// Times of the host, which are in nanoseconds, in words.

import { count, seconds } from "abele/core/format.js";

const SHORT_NS = 1000;

/** A time in its unit. */
export const time = (ns) => seconds(ns / 1e9);

/** How long an event takes: of short ones no more is known than that. */
export function lengthText(ns) {
  return ns < SHORT_NS ? `<1 µs (${count(ns)} ns)` : time(ns);
}
