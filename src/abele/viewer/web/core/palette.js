// The command palette, and the page of keys: both list what can be done here.

import { fill, h } from "abele/core/dom.js";

/** Letters of a query in the order in which they occur in a text: how well it matches; null where it does not. */
export function matched(query, text) {
  const wanted = query.toLowerCase().replaceAll(" ", "");
  const held = text.toLowerCase();
  const whole = held.indexOf(query.toLowerCase());
  if (whole >= 0) return whole;
  let at = -1;
  let gaps = 0;
  for (const letter of wanted) {
    const next = held.indexOf(letter, at + 1);
    if (next < 0) return null;
    gaps += next - at - 1;
    at = next;
  }
  return 100 + gaps;
}

/** A dialog that closes with Escape or a click beside it; the focus returns to where it was. */
export function dialog(label, content) {
  const before = document.activeElement;
  const box = h("dialog.dialog", { "aria-label": label }, content);
  box.addEventListener("click", (event) => event.target === box && box.close());
  box.addEventListener("close", () => {
    box.remove();
    before?.focus?.();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

/**
 * Open the palette.
 * @param {() => Array<{title: string, key?: string, group?: string, run: () => void}>} commands
 * @param {(query: string) => Promise<Array<{title: string, group?: string, run: () => void}>>} [search]  finds things in the reports
 */
export function openPalette(commands, search) {
  if (document.querySelector("dialog.palette-open")) return;
  let shown = [];
  let at = 0;
  let asked = 0;
  const input = h("input.palette-input", { placeholder: "a command, a view, an operation, a variable, tile 17 …", "aria-label": "Command", spellcheck: "false", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list" });
  const list = h("div.palette-list", { id: "palette-list", role: "listbox" });
  const box = dialog("Commands", h("div.palette", {}, input, list));
  box.classList.add("palette-open");
  const run = (command) => {
    box.close();
    command.run();
  };
  const draw = () => fill(list, shown.map((command, i) => {
    const item = h(`div.palette-item${i === at ? ".chosen" : ""}`, { role: "option", "aria-selected": i === at ? "true" : "false", onclick: () => run(command) },
      h("span.dim", {}, command.group ?? "command"), h("span.grow", {}, command.title), command.key ? h("kbd", {}, command.key) : null);
    if (i === at) queueMicrotask(() => item.scrollIntoView({ block: "nearest" }));
    return item;
  }), shown.length ? null : h("div.palette-item.dim", {}, "nothing found"));
  const look = async () => {
    const query = input.value.trim();
    asked += 1;
    const mine = asked;
    at = 0;
    const ranked = commands().map((command) => [matched(query, command.title), command]).filter(([rank]) => rank !== null);
    ranked.sort(([a], [b]) => a - b);
    shown = ranked.map(([, command]) => command);
    draw();
    if (search && query.length > 1) {
      const found = await search(query).catch(() => []);
      if (mine === asked) {
        shown = [...shown, ...found].slice(0, 60);
        draw();
      }
    }
  };
  input.addEventListener("input", look);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      at = Math.min(Math.max(at + step, 0), shown.length - 1);
      draw();
      event.preventDefault();
    } else if (event.key === "Enter" && shown[at]) {
      event.preventDefault();
      run(shown[at]);
    }
  });
  look();
  input.focus();
}

/** The page of keys. */
export function openHelp(commands) {
  const rows = commands().filter((c) => c.key).map((c) => [c.key, c.title]);
  const fixed = [["W S", "zoom in and out; hold to fly"], ["A D", "move left and right; hold to fly"], ["wheel", "zoom where the pointer is"],
    ["drag, shift + wheel", "move"], ["shift + drag", "select a part of the axis"], ["double click", "show all"], ["arrows, Enter", "in tables: go to a row, pick it"]];
  dialog("Keys", h("div.help", {}, h("h2", {}, "Keys"), h("table", {}, [...fixed, ...rows].map(([key, title]) =>
    h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, title))))));
}
