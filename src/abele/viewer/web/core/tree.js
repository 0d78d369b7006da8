// A tree of any length in rows: parents open and close, a filter keeps the parents of what it finds, and only the rows that
// are seen are there. Nodes are numbers in the order in which each comes before what is inside it.

import { download } from "abele/core/chart.js";
import { everyFrame, fill, h, settled } from "abele/core/dom.js";
import { count } from "abele/core/format.js";
import { quoted } from "abele/core/table.js";

const ROW = 22;
const INDENT = 10;
const FILTER_WAIT = 60;

/**
 * The nodes that are seen, in order.
 * @param {ArrayLike<number>} size  nodes of each subtree, itself included
 * @param {(node: number) => boolean} isOpen
 * @param {((node: number) => boolean)|null} keeps  nodes that a filter leaves; null for all
 * @param {((a: number, b: number) => number)|null} compare  order among neighbours; null for their own
 * @returns {Int32Array}
 */
export function seen(size, isOpen, keeps, compare) {
  const found = [];
  const waiting = [];
  const push = (first, end) => {
    const inside = [];
    for (let i = first; i < end; i += size[i]) if (!keeps || keeps(i)) inside.push(i);
    if (compare) inside.sort(compare);
    for (let k = inside.length - 1; k >= 0; k -= 1) waiting.push(inside[k]);
  };
  push(0, size.length);
  while (waiting.length) {
    const node = waiting.pop();
    found.push(node);
    if (size[node] > 1 && isOpen(node)) push(node + 1, node + size[node]);
  }
  return Int32Array.from(found);
}

/**
 * What a filter leaves: 0 nothing, 1 kept because something inside it was found, 2 found, 3 inside of what was found.
 * @param {ArrayLike<number>} size @param {ArrayLike<number>} parent @param {(node: number) => boolean} found
 */
export function kept(size, parent, found) {
  const state = new Uint8Array(size.length);
  let until = 0;
  for (let i = 0; i < size.length; i += 1) {
    if (found(i)) state[i] = 2;
    if (state[i] === 2) {
      for (let p = parent[i]; p >= 0 && !state[p]; p = parent[p]) state[p] = 1;
      until = Math.max(until, i + size[i]);
    } else if (i < until) state[i] = 3;
  }
  return state;
}

/** The node around each: −1 for roots. */
export function parents(size) {
  const parent = new Int32Array(size.length).fill(-1);
  const around = [];
  for (let i = 0; i < size.length; i += 1) {
    while (around.length && around.at(-1) + size[around.at(-1)] <= i) around.pop();
    if (around.length) parent[i] = around.at(-1);
    around.push(i);
  }
  return parent;
}

export class TreeTable {
  /**
   * @param {object} how
   * @param {string} how.label  what a screen reader says
   * @param {string} how.title  heading of the nodes' own column
   * @param {Array<{name: string, title?: string, doc?: string, width: number, right?: boolean, hidden?: boolean,
   *   show: (node: number) => (string|Node), value?: (node: number) => (number|string)}>} how.columns  value: sorts by it
   * @param {(node: number) => (string|Node|Array)} how.name  what stands in a node's own column
   * @param {(node: number) => string} how.text  what a filter looks into
   * @param {(node: number) => void} how.pick  a row was clicked, or Enter pressed on it
   * @param {(node: number) => string} [how.mark]  classes of a row: "same" for those that are highlighted
   * @param {(told: {filter: string, level: number, turned: string, sort: string}) => void} [how.changed]
   */
  constructor({ label, title, columns, name, text, pick, mark = () => "", changed = () => {}, filter = "", placeholder = "filter: words", sort = "" }) {
    Object.assign(this, { label, title, columns, name, text, pick, mark, changed, sort });
    this.size = new Int32Array(0);
    this.depth = new Uint8Array(0);
    this.parent = new Int32Array(0);
    this.level = 2;
    this.turned = new Set();
    this.state = null;
    this.rows = new Int32Array(0);
    this.selected = -1;
    this.cursor = 0;
    this.input = h("input.filter", { type: "search", placeholder, value: filter, "aria-label": `Filter ${label}`, spellcheck: "false" });
    this.input.addEventListener("input", settled(() => this.#filtered(), FILTER_WAIT));
    this.note = h("span.dim", { role: "status" });
    this.head = h("div.thead", { role: "row" });
    this.space = h("div.tspace");
    this.body = h("div.tbody", { role: "rowgroup" });
    this.scroller = h("div.tscroll", { role: "treegrid", "aria-label": label, tabindex: "0" }, this.head, this.space);
    this.space.append(this.body);
    this.element = h("div.table.treegrid", {},
      h("div.bar", {}, this.input, this.note, h("span.grow"),
        h("button.small", { onclick: () => this.openTo(0), title: "Close all" }, "−"),
        h("button.small", { onclick: () => this.openTo(this.level + 1), title: "Open one level more" }, "+"),
        h("button.small", { onclick: () => this.openTo(99), title: "Open all" }, "all"),
        h("button.small", { onclick: () => this.#csv(), title: "Save the rows as CSV" }, "CSV")),
      this.scroller);
    this.redraw = everyFrame(() => this.#draw());
    this.scroller.addEventListener("scroll", () => this.redraw());
    this.scroller.addEventListener("keydown", (event) => this.#key(event));
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.scroller);
    this.#headings();
  }

  destroy() {
    this.observer.disconnect();
  }

  /** Other nodes: how deep each lies and how many its subtree has. */
  fill(depth, size, { level = this.level, turned = "" } = {}) {
    Object.assign(this, { depth, size, level, parent: parents(size) });
    this.turned = new Set(turned.split(",").filter(Boolean).map(Number).filter((i) => i >= 0 && i < size.length));
    this.cursor = 0;
    this.#filtered();
  }

  isOpen(node) {
    // A filter opens what it keeps because of something inside.
    if (this.state) return this.state[node] === 1 || this.turned.has(node);
    return (this.depth[node] < this.level) !== this.turned.has(node);
  }

  openTo(level) {
    this.level = Math.max(0, level);
    this.turned.clear();
    this.#again();
  }

  /** Mark a node, open what it is in, and bring it into sight. */
  select(node, { reveal = true } = {}) {
    this.selected = node;
    if (node >= 0 && reveal && node < this.size.length) {
      for (let p = this.parent[node]; p >= 0; p = this.parent[p]) {
        if (this.isOpen(p)) continue;
        if (this.turned.has(p)) this.turned.delete(p);
        else this.turned.add(p);
      }
      this.#again();
      const at = this.rows.indexOf(node);
      if (at >= 0) {
        this.cursor = at;
        this.#show(at);
      }
    }
    this.redraw();
  }

  turn(node) {
    if (this.size[node] <= 1) return;
    if (this.turned.has(node)) this.turned.delete(node);
    else this.turned.add(node);
    this.#again();
  }

  #filtered() {
    const terms = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.state = terms.length
      ? kept(this.size, this.parent, (i) => {
        const text = this.text(i).toLowerCase();
        return terms.every((term) => text.includes(term));
      })
      : null;
    this.scroller.scrollTop = 0;
    this.#again();
  }

  #compare() {
    const column = this.columns.find((c) => c.name === this.sort.replace(/^-/, ""));
    if (!column?.value) return null;
    const turn = this.sort.startsWith("-") ? -1 : 1;
    return (a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return turn * (x < y ? -1 : x > y ? 1 : 0);
    };
  }

  #again() {
    const keeps = this.state ? (i) => this.state[i] > 0 : null;
    this.rows = seen(this.size, (i) => this.isOpen(i), keeps, this.#compare());
    this.space.style.height = `${this.rows.length * ROW}px`;
    this.scroller.setAttribute("aria-rowcount", this.rows.length);
    const found = this.state ? this.state.reduce((sum, s) => sum + (s === 2), 0) : 0;
    this.note.textContent = this.state ? `${count(found)} of ${count(this.size.length)} found` : `${count(this.rows.length)} of ${count(this.size.length)} rows open`;
    const turned = [...this.turned];
    this.changed({ filter: this.input.value, level: this.level, turned: turned.length <= 200 ? turned.join(",") : "", sort: this.sort });
    this.redraw();
  }

  #shown() {
    return this.columns.filter((c) => !c.hidden);
  }

  #headings() {
    const shown = this.#shown();
    this.scroller.style.setProperty("--columns", ["minmax(240px, 1fr)", ...shown.map((c) => `${c.width}px`)].join(" "));
    this.scroller.style.setProperty("--least", `${240 + shown.reduce((sum, c) => sum + c.width, 0)}px`);
    fill(this.head, h("button.th", { role: "columnheader", onclick: () => this.#sortBy("") }, this.title), shown.map((column) => {
      const [up, down] = [this.sort === column.name, this.sort === `-${column.name}`];
      return h(`button.th${column.right ? ".right" : ""}`, {
        role: "columnheader", title: column.doc, "aria-sort": up ? "ascending" : down ? "descending" : "none",
        onclick: () => column.value && this.#sortBy(down ? column.name : up ? "" : `-${column.name}`),
      }, column.title ?? column.name, up ? " ▲" : down ? " ▼" : "");
    }));
  }

  #sortBy(sort) {
    this.sort = sort;
    this.#headings();
    this.#again();
  }

  #draw() {
    const height = this.scroller.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 4);
    const last = Math.min(this.rows.length, Math.ceil((this.scroller.scrollTop + height) / ROW) + 4);
    this.body.style.transform = `translateY(${first * ROW}px)`;
    const shown = this.#shown();
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.#row(at, this.rows[at], shown));
    if (!this.rows.length) rows.push(h("div.tr.dim", {}, h("div.td", {}, this.size.length ? "nothing matches the filter" : "no rows")));
    fill(this.body, rows);
  }

  #row(at, node, shown) {
    const inner = this.size[node] > 1;
    const open = inner && this.isOpen(node);
    const chosen = node === this.selected;
    const extra = this.mark(node);
    const hit = this.state?.[node] === 2 ? ".found" : "";
    const twist = h("span.twist", { onclick: (event) => {
      event.stopPropagation();
      this.turn(node);
    } }, inner ? (open ? "▾" : "▸") : "");
    const own = h("div.td.own", { role: "gridcell" }, twist, this.name(node));
    own.style.paddingLeft = `${6 + INDENT * Math.min(this.depth[node], 24)}px`;
    return h(`div.tr${chosen ? ".chosen" : ""}${at === this.cursor ? ".cursor" : ""}${hit}${extra ? "." + extra : ""}`, {
      role: "row", "aria-level": this.depth[node] + 1, "aria-rowindex": at + 1, "aria-selected": chosen ? "true" : "false",
      "aria-expanded": inner ? String(open) : undefined,
      onclick: () => {
        this.cursor = at;
        this.#pick(node);
      },
      ondblclick: () => this.turn(node),
    }, own, shown.map((column) => {
      const content = column.show(node);
      return h(`div.td${column.right ? ".right" : ""}`, { role: "gridcell", title: typeof content === "string" ? content : undefined }, content);
    }));
  }

  #pick(node) {
    this.selected = node;
    this.redraw();
    this.pick(node);
  }

  #show(at) {
    const top = at * ROW;
    const height = this.scroller.clientHeight - 2 * ROW;
    if (top < this.scroller.scrollTop || top > this.scroller.scrollTop + height) this.scroller.scrollTop = Math.max(0, top - height / 2);
  }

  #key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    const node = this.rows[this.cursor];
    if (event.key in steps) {
      this.cursor = Math.min(Math.max(this.cursor + steps[event.key], 0), Math.max(this.rows.length - 1, 0));
      this.#show(this.cursor);
      this.redraw();
    } else if (event.key === "Enter" && node !== undefined) {
      this.#pick(node);
    } else if (event.key === "ArrowRight" && node !== undefined) {
      if (!this.isOpen(node)) this.turn(node);
    } else if (event.key === "ArrowLeft" && node !== undefined) {
      if (this.size[node] > 1 && this.isOpen(node)) this.turn(node);
      else if (this.parent[node] >= 0) {
        this.cursor = this.rows.indexOf(this.parent[node]);
        this.#show(this.cursor);
        this.redraw();
      }
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  #csv() {
    const shown = this.#shown();
    const lines = [["level", this.title, ...shown.map((c) => c.name)].map(quoted).join(",")];
    for (const node of this.rows) {
      lines.push([this.depth[node], this.text(node), ...shown.map((c) => (c.value ? c.value(node) : textOf(c.show(node))))].map(quoted).join(","));
    }
    download(`${this.label.replaceAll(/\W+/g, "-")}.csv`, lines.join("\r\n") + "\r\n", "text/csv");
  }
}

function textOf(content) {
  return content instanceof Node ? content.textContent : content;
}
