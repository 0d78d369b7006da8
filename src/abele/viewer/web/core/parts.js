// Small pieces that views are put together of.

import { fill, h } from "abele/core/dom.js";
import { percent } from "abele/core/format.js";

/** A panel with a heading, things beside it, and content. */
export function panel(title, content, ...beside) {
  return h("section.panel", { "aria-label": title }, h("header.bar", {}, h("h2", {}, title), h("span.grow"), beside), content);
}

/** A figure with its name below. */
export function figure(value, name, note = "", kind = "") {
  return h("div.figure", { title: note }, h(`div.figure-value${kind ? "." + kind : ""}`, {}, value), h("div.figure-name", {}, name));
}

/** A choice of a few words, as buttons in a row. */
export function choice(label, options, value, pick) {
  const group = h("span.choice", { role: "radiogroup", "aria-label": label });
  const draw = (now) => fill(group, options.map(([name, title]) => h(`button.small${name === now ? ".on" : ""}`, {
    role: "radio", "aria-checked": name === now ? "true" : "false",
    onclick: () => {
      draw(name);
      pick(name);
    },
  }, title)));
  draw(value);
  group.show = draw;
  return group;
}

/** A switch with its words. */
export function toggle(title, on, pick) {
  return h("label.toggle", {}, h("input", { type: "checkbox", checked: on, onchange: (e) => pick(e.target.checked) }), " ", title);
}

/** A list of options to choose one of. */
export function dropdown(label, options, value, pick) {
  const list = h("select", { "aria-label": label, onchange: (e) => pick(e.target.value) },
    options.map(([name, title]) => h("option", { value: name, selected: name === value }, title)));
  return list;
}

/** The colours of a picture and what they mean. */
export function legend(entries) {
  return h("div.legend", {}, entries.map(([colour, title]) => {
    const mark = h("i");
    mark.style.background = colour;
    return h("span", {}, mark, title);
  }));
}

/** One bar of shares. */
export function shares(entries, whole) {
  const bar = h("div.shares", { role: "img", "aria-label": entries.map(([, title, value]) => `${title} ${percent(value / whole)}`).join(", ") });
  for (const [colour, title, value] of entries) {
    if (!(value > 0)) continue;
    const part = h("i", { title: `${title}: ${percent(value / whole)}` });
    part.style.background = colour;
    part.style.width = `${(value / whole) * 100}%`;
    bar.append(part);
  }
  return bar;
}

/** Two boxes one above the other with a bar between them that is dragged; `part` of the height is the upper one's. */
export function split(upper, lower, part = 0.55, moved = () => {}) {
  const bar = h("div.splitter", { role: "separator", tabindex: "0", "aria-orientation": "horizontal", "aria-label": "Size of the upper part" });
  const box = h("div.split", {}, h("div.split-part", {}, upper), bar, h("div.split-part", {}, lower));
  const show = (value) => {
    part = Math.min(Math.max(value, 0.1), 0.9);
    box.style.gridTemplateRows = `${part}fr 6px ${1 - part}fr`;
    bar.setAttribute("aria-valuenow", Math.round(part * 100));
  };
  bar.addEventListener("pointerdown", (event) => bar.setPointerCapture(event.pointerId));
  bar.addEventListener("pointermove", (event) => {
    if (!bar.hasPointerCapture(event.pointerId)) return;
    const { top, height } = box.getBoundingClientRect();
    show((event.clientY - top) / height);
  });
  bar.addEventListener("pointerup", () => moved(part));
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -0.05, ArrowDown: 0.05 }[event.key];
    if (!step) return;
    show(part + step);
    moved(part);
    event.preventDefault();
  });
  show(part);
  return box;
}

/** Tabs: names, titles and what makes their content when they are first shown. */
export function tabs(label, entries, value, pick = () => {}) {
  const made = new Map();
  const body = h("div.tab-body", { role: "tabpanel" });
  const row = h("div.tabs", { role: "tablist", "aria-label": label });
  const show = (name) => {
    const entry = entries.find(([n]) => n === name) ?? entries[0];
    fill(row, entries.map(([n, title]) => h(`button.tab${n === entry[0] ? ".on" : ""}`, {
      role: "tab", "aria-selected": n === entry[0] ? "true" : "false",
      onclick: () => {
        show(n);
        pick(n);
      },
    }, title)));
    if (!made.has(entry[0])) made.set(entry[0], entry[2]());
    fill(body, made.get(entry[0]));
  };
  show(value);
  const element = h("div.tabbed", {}, row, body);
  element.show = show;
  return element;
}

/** What stands where there is nothing to see. */
export function empty(text, remedy = "") {
  return h("div.empty", {}, h("p", {}, text), remedy ? h("p.dim", {}, remedy) : null);
}

/** An error in the place of what it kept from being shown. */
export function failure(error) {
  return h("div.empty.bad", { role: "alert" }, h("p", {}, error.message), error.because ? h("p", {}, error.because) : null, error.remedy ? h("p.dim", {}, error.remedy) : null);
}
