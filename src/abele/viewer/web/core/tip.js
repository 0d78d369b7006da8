// The box of text beside the pointer.

import { fill, h } from "abele/core/dom.js";

const box = h("div.tip", { role: "tooltip", hidden: true });

/** Show lines beside the pointer; the first is the heading, pairs are a name and a value. */
export function tip(event, lines) {
  if (!box.isConnected) document.body.append(box);
  if (!lines || !lines.length) {
    box.hidden = true;
    return;
  }
  fill(box, lines.map((line, i) => Array.isArray(line)
    ? h("div.tip-row", {}, h("span", {}, line[0]), h("b", {}, line[1]))
    : h(i ? "div" : "div.tip-title", {}, line)));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - width - 6);
  const y = event.clientY + 16 + height > innerHeight ? event.clientY - height - 8 : event.clientY + 16;
  box.style.left = `${Math.max(4, x)}px`;
  box.style.top = `${Math.max(4, y)}px`;
}

export function hideTip() {
  box.hidden = true;
}

/** Show a tip over an element as `lines(event)` says; null for none. */
export function tips(element, lines) {
  element.addEventListener("pointermove", (event) => tip(event, event.buttons ? null : lines(event)));
  element.addEventListener("pointerleave", hideTip);
}
