// Views that begin anew when another report is shown: nothing of the one before stays.

import { fill } from "abele/core/dom.js";
import { failure } from "abele/core/parts.js";

/** What is shown where there is no view: it does nothing. */
export const NOTHING = { update() {}, destroy() {}, charts: [], commands: [] };

/**
 * A view that is mounted again when the report changes.
 * @param {any} context @param {HTMLElement} place
 * @param {(context: any, place: HTMLElement) => Promise<any>} mount  makes the view of one report
 * @param {string[]} [names]  what else of the state a view of its own is for
 */
export async function renewed(context, place, mount, names = []) {
  let now = await mount(context, place);
  let turn = 0;
  const again = async () => {
    turn += 1;
    const mine = turn;
    now.destroy();
    now = NOTHING;
    fill(place);
    try {
      const next = await mount(context, place);
      if (mine === turn) now = next;
      else next.destroy();
    } catch (error) {
      if (mine === turn) fill(place, failure(error));
    }
  };
  return {
    update(changed) {
      if (["reports", ...names].some((name) => changed.has(name))) again();
      else now.update(changed);
    },
    destroy() {
      turn += 1;
      now.destroy();
    },
    get charts() { return now.charts; },
    get commands() { return now.commands; },
  };
}
