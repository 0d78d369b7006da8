// A table of any length: only the rows that are seen are there; filtered and sorted where the rows are.

import { everyFrame, fill, h, settled } from "abele/core/dom.js";
import { count } from "abele/core/format.js";
import { download } from "abele/core/chart.js";
import { shared, shortened } from "abele/core/names.js";

const ROW = 22;
const PAGE = 200;
const FILTER_WAIT = 60;
const LEAST_WIDTH = 40;
const NUDGE = 16;
const PADDING = 16;
const KEPT = "abele.columns";

/** Widths of columns, and whether they are hidden, as somebody chose them: by table, for as long as the page is open. */
const chosen = read();

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) ?? {};
  } catch {
    // A frame in a notebook has no storage; the page remembers until it goes.
    return {};
  }
}

function keep(label, column) {
  chosen[label] = { ...chosen[label], [column.name]: { width: column.width, hidden: Boolean(column.hidden) } };
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(chosen));
  } catch {
    // As above.
  }
}

/**
 * @typedef {{name: string, title?: string, doc?: string, right?: boolean, width?: number, hidden?: boolean,
 *   show?: (value: any, row: Object<string, any>) => (string|Node)}} TableColumn
 * @typedef {{total: number, found: number, rows: Array<Object<string, any>>}} TablePage
 */
export class DataTable {
  /**
   * @param {object} how
   * @param {string} how.label  what a screen reader says
   * @param {TableColumn[]} how.columns
   * @param {(query: {filter: string, sort: string, first: number, count: number}) => Promise<TablePage>} how.page
   *        rows from `first` on; each has its `row`, the number that selection goes by
   * @param {(row: Object<string, any>, event: Event) => void} [how.pick]  a row was clicked, or Enter pressed on it
   * @param {string} [how.sort]  a column, with "-" before it for largest first
   * @param {string} [how.filter]
   * @param {string} [how.placeholder]
   * @param {(query: {filter: string, sort: string}) => void} [how.changed]  somebody filtered or sorted
   */
  constructor({ label, columns, page, pick, sort = "", filter = "", placeholder = "filter: words, or cycles>1000", changed }) {
    for (const column of columns) Object.assign(column, { first: column.width, hidden: column.hidden ?? false, ...chosen[label]?.[column.name] });
    Object.assign(this, { columns, page, pick, sort, changed, label });
    this.common = new Map();
    this.pages = new Map();
    this.found = 0;
    this.total = 0;
    this.selected = null;
    this.cursor = 0;
    this.asked = 0;
    this.input = h("input.filter", { type: "search", placeholder, value: filter, "aria-label": `Filter ${label}`, spellcheck: "false" });
    this.input.addEventListener("input", settled(() => this.#again(), FILTER_WAIT));
    this.note = h("span.dim", { role: "status" });
    this.head = h("div.thead", { role: "row" });
    this.space = h("div.tspace");
    this.body = h("div.tbody", { role: "rowgroup" });
    this.scroller = h("div.tscroll", { role: "grid", "aria-label": label, tabindex: "0" }, this.head, this.space);
    this.space.append(this.body);
    this.element = h("div.table", {},
      h("div.bar", {}, this.input, this.note, h("span.grow"),
        h("button.small", { onclick: (e) => this.#choose(e), title: "Choose columns" }, "columns"),
        h("button.small", { onclick: () => this.#csv(), title: "Save the rows as CSV" }, "CSV")),
      this.scroller);
    this.redraw = everyFrame(() => this.#rows());
    this.scroller.addEventListener("scroll", () => this.redraw());
    this.scroller.addEventListener("keydown", (event) => this.#key(event));
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.scroller);
    this.#headings();
    this.#again();
  }

  get filter() {
    return this.input.value;
  }

  destroy() {
    this.observer.disconnect();
  }

  /** Ask for the rows anew: what they are of changed. */
  refresh() {
    this.#again();
  }

  setFilter(text) {
    if (this.input.value === text) return;
    this.input.value = text;
    this.#again();
  }

  /** Mark the row of this number. */
  select(row) {
    this.selected = row;
    this.redraw();
  }

  #shown() {
    return this.columns.filter((c) => !c.hidden);
  }

  #least() {
    return this.#shown().reduce((sum, c) => sum + (c.width ?? 160), 0);
  }

  #template() {
    return this.#shown().map((c) => (c.width ? `${c.width}px` : "minmax(160px, 1fr)")).join(" ");
  }

  #headings() {
    this.scroller.style.setProperty("--columns", this.#template());
    this.scroller.style.setProperty("--least", `${this.#least()}px`);
    fill(this.head, this.#shown().map((column) => {
      const up = this.sort === column.name;
      const down = this.sort === `-${column.name}`;
      return h("div.thcell", { role: "presentation" }, h(`button.th${column.right ? ".right" : ""}`, {
        role: "columnheader", title: column.doc, "aria-sort": up ? "ascending" : down ? "descending" : "none",
        onkeydown: (event) => {
          if (!event.altKey || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
          this.#widen(column, event.currentTarget.offsetWidth + (event.key === "ArrowRight" ? NUDGE : -NUDGE));
          event.preventDefault();
          event.stopPropagation();
        },
        onclick: () => {
          this.sort = down ? column.name : up ? "" : column.right ? `-${column.name}` : column.name;
          this.#headings();
          this.#again();
          this.changed?.({ filter: this.filter, sort: this.sort });
        },
      }, column.title ?? column.name, up ? " ▲" : down ? " ▼" : ""), this.#grip(column));
    }));
  }

  /** The edge of a heading, which is dragged; twice clicked it gives the column the width that it had. */
  #grip(column) {
    let from = null;
    return h("span.grip", {
      title: "Drag to make the column wider; alt and arrows on its heading do as well", "aria-hidden": "true",
      onpointerdown: (event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        from = event.clientX - event.currentTarget.parentElement.offsetWidth;
        event.preventDefault();
      },
      onpointermove: (event) => {
        if (from !== null) this.#widths(column, event.clientX - from);
      },
      onpointerup: () => {
        if (from !== null) keep(this.label, column);
        from = null;
      },
      ondblclick: () => this.#widen(column, column.first),
    });
  }

  #widen(column, width) {
    this.#widths(column, width);
    keep(this.label, column);
  }

  #widths(column, width) {
    column.width = width === undefined ? undefined : Math.max(LEAST_WIDTH, Math.round(width));
    this.scroller.style.setProperty("--columns", this.#template());
    this.scroller.style.setProperty("--least", `${this.#least()}px`);
    this.redraw();
  }

  async #again() {
    this.asked += 1;
    this.pages = new Map();
    this.scroller.scrollTop = 0;
    this.cursor = 0;
    this.changed?.({ filter: this.filter, sort: this.sort });
    await this.#fetch(0);
  }

  async #fetch(number) {
    if (this.pages.has(number)) return;
    const asked = this.asked;
    this.pages.set(number, null);
    try {
      const page = await this.page({ filter: this.filter.trim(), sort: this.sort, first: number * PAGE, count: PAGE });
      if (asked !== this.asked) return;
      this.pages.set(number, page.rows);
      this.common.clear();
      this.found = page.found;
      this.total = page.total;
      this.note.className = "dim";
      this.note.textContent = page.found === page.total ? `${count(page.total)} rows` : `${count(page.found)} of ${count(page.total)} rows`;
    } catch (error) {
      if (asked !== this.asked) return;
      this.found = 0;
      this.note.className = "bad";
      this.note.textContent = [error.message, error.remedy].filter(Boolean).join(": ");
    }
    this.space.style.height = `${this.found * ROW}px`;
    this.scroller.setAttribute("aria-rowcount", this.found);
    this.redraw();
  }

  #row(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  #rows() {
    const height = this.scroller.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 4);
    const last = Math.min(this.found, Math.ceil((this.scroller.scrollTop + height) / ROW) + 4);
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page += 1) this.#fetch(page);
    this.body.style.transform = `translateY(${first * ROW}px)`;
    const shown = this.#shown();
    const room = Array.from(this.head.children, (cell) => cell.offsetWidth - PADDING);
    const rows = [];
    for (let i = first; i < last; i += 1) {
      const row = this.#row(i);
      const chosen = row && row.row === this.selected;
      rows.push(h(`div.tr${chosen ? ".chosen" : ""}${i === this.cursor ? ".cursor" : ""}`, {
        role: "row", "aria-rowindex": i + 1, "aria-selected": chosen ? "true" : "false",
        onclick: (event) => {
          this.cursor = i;
          if (row) this.#pick(row, event);
        },
      }, row ? shown.map((column, k) => {
        const told = shownIn(column, row);
        const text = typeof told === "string" && !column.right ? shortened(told, this.#common(column), this.#measure(), room[k]) : told;
        return h(`div.td${column.right ? ".right" : ""}`, { role: "gridcell", title: typeof told === "string" ? told : undefined }, text);
      }) : h("div.td.dim", {}, "…")));
    }
    fill(this.body, rows);
    if (this.found === 0 && !rows.length) fill(this.body, h("div.tr.dim", {}, h("div.td", {}, this.total ? "no row matches the filter" : "no rows")));
  }

  /** How many of a column's texts have each part of a name. */
  #common(column) {
    if (!this.common.has(column.name)) {
      const texts = [...this.pages.values()].flatMap((rows) => rows ?? []).map((row) => shownIn(column, row));
      this.common.set(column.name, shared(texts.filter((text) => typeof text === "string")));
    }
    return this.common.get(column.name);
  }

  /** What measures a text of the table, in CSS pixels. */
  #measure() {
    if (!this.pen) {
      this.pen = document.createElement("canvas").getContext("2d");
      this.pen.font = getComputedStyle(this.scroller).font;
    }
    return (text) => this.pen.measureText(text).width;
  }

  #pick(row, event) {
    this.selected = row.row;
    this.redraw();
    this.pick?.(row, event);
  }

  #key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") {
      const row = this.#row(this.cursor);
      if (row) this.#pick(row, event);
    } else if (event.key in steps) {
      this.cursor = Math.min(Math.max(this.cursor + steps[event.key], 0), Math.max(this.found - 1, 0));
      const top = this.cursor * ROW;
      const height = this.scroller.clientHeight - 2 * ROW;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top > this.scroller.scrollTop + height) this.scroller.scrollTop = top - height;
      this.redraw();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  #choose(event) {
    const open = this.element.querySelector(".chooser");
    if (open) {
      open.remove();
      return;
    }
    const chooser = h("div.chooser", { role: "group", "aria-label": "Columns" }, this.columns.map((column) =>
      h("label", { title: column.doc }, h("input", {
        type: "checkbox", checked: !column.hidden,
        onchange: (e) => {
          column.hidden = !e.target.checked;
          keep(this.label, column);
          this.#headings();
          this.redraw();
        },
      }), " ", column.title ?? column.name)));
    event.currentTarget.after(chooser);
  }

  async #csv() {
    const shown = this.#shown();
    const lines = [shown.map((c) => quoted(c.name)).join(",")];
    for (let first = 0; first < this.found; first += 2000) {
      const page = await this.page({ filter: this.filter.trim(), sort: this.sort, first, count: 2000 });
      for (const row of page.rows) lines.push(shown.map((c) => quoted(row[c.name])).join(","));
      if (!page.rows.length) break;
    }
    download(`${this.label.replaceAll(/\W+/g, "-")}.csv`, lines.join("\r\n") + "\r\n", "text/csv");
  }
}

/** What a cell shows. */
function shownIn(column, row) {
  return column.show ? column.show(row[column.name], row) : plain(row[column.name]);
}

function plain(value) {
  return typeof value === "number" ? count(value) : String(value ?? "");
}

/** A cell of CSV; what a spreadsheet would run as a formula is kept text by a quote before it. */
export function quoted(value) {
  let text = String(value ?? "");
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows of one of the report's tables, a page at a time. */
export function reportRows(context, of, more = {}) {
  return async ({ filter, sort, first, count: most }) => {
    const frozen = context.source.isFrozen;
    const asked = frozen
      ? { of, count: 2000, sort: { ops: "-cycles", variables: "-bytes" }[of] ?? "" }
      : { of, filter, sort, first, count: most };
    const { head, arrays } = await context.ask("table", { ...asked, ...more });
    let rows = Array.from({ length: arrays.row.length }, (_, i) => {
      const row = { row: arrays.row[i] };
      for (const { name, text } of head.columns) row[name] = text ? head.text[name][i] : arrays[name][i];
      return row;
    });
    if (!frozen) return { total: head.total, found: head.found, rows };
    rows = sorted(rows.filter((row) => fits(row, filter)), sort);
    return { total: head.total, found: rows.length, rows: rows.slice(first, first + most) };
  };
}

/** Rows of an array, a page at a time: for tables that the page made itself. */
export function arrayRows(all) {
  return async ({ filter, sort, first, count: most }) => {
    const rows = sorted(all().filter((row) => fits(row, filter)), sort);
    return { total: all().length, found: rows.length, rows: rows.slice(first, first + most) };
  };
}

const SIGNS = { ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "!=": (a, b) => a !== b, ">": (a, b) => a > b, "<": (a, b) => a < b, "=": (a, b) => a === b };

/** Whether a row passes a filter, as the server reads it. */
export function fits(row, filter) {
  return filter.split(/\s+/).filter(Boolean).every((term) => {
    for (const sign of Object.keys(SIGNS)) {
      const at = term.indexOf(sign);
      if (at > 0 && term.slice(0, at) in row) {
        const held = row[term.slice(0, at)];
        const value = term.slice(at + sign.length);
        return typeof held === "string" ? SIGNS[sign](held.toLowerCase(), value.toLowerCase()) : SIGNS[sign](held, Number(value.replaceAll(",", "")));
      }
    }
    const wanted = term.toLowerCase();
    return Object.values(row).some((value) => typeof value === "string" && value.toLowerCase().includes(wanted));
  });
}

/** Rows in order of a column, "-" before it for largest first. */
export function sorted(rows, sort) {
  if (!sort) return rows;
  const name = sort.replace(/^-/, "");
  const turn = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => turn * (a[name] < b[name] ? -1 : a[name] > b[name] ? 1 : 0));
}
