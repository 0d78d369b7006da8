// Pages of tables that the server makes for a selection.

import { fits, sorted } from "abele/core/table.js";

/** Answers as rows: numbers and texts by name. */
export function rowsOf({ head, arrays }) {
  const names = Object.keys(arrays);
  const texts = Object.entries(head.text ?? {});
  return Array.from({ length: arrays.row.length }, (_, i) => {
    const row = {};
    for (const name of names) row[name] = arrays[name][i];
    for (const [name, values] of texts) row[name] = values[i];
    return row;
  });
}

/**
 * Rows of a question that filters and sorts as the question "table" does.
 * @param {any} context @param {string} question
 * @param {() => Object<string, any>} params  what the rows are of
 * @param {Object<string, any>} frozen  parameters with which a static page has them
 * @param {(row: Object<string, any>) => boolean} keep  which of those rows the server would tell
 */
export function askedRows(context, question, params, frozen = {}, keep = () => true) {
  return async ({ filter, sort, first, count }) => {
    if (!context.source.isFrozen) {
      const answer = await context.ask(question, { ...params(), filter, sort, first, count });
      return { total: answer.head.total, found: answer.head.found, rows: rowsOf(answer) };
    }
    const answer = await context.ask(question, { ...params(), ...frozen });
    const rows = sorted(rowsOf(answer).filter((row) => keep(row) && fits(row, filter)), sort);
    return { total: answer.head.total, found: rows.length, rows: rows.slice(first, first + count) };
  };
}
