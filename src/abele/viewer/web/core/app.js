// The frame of the page: reports on top, views at the left, what is waited for below.

import { download } from "abele/core/chart.js";
import { Context } from "abele/core/context.js";
import { fill, h } from "abele/core/dom.js";
import { bytes, cycles, seconds } from "abele/core/format.js";
import { Keys } from "abele/core/keys.js";
import { Loading, WANTED } from "abele/core/loading.js";
import { dialog, openHelp, openPalette } from "abele/core/palette.js";
import { choice, dropdown, failure } from "abele/core/parts.js";
import { Source } from "abele/core/source.js";
import { State } from "abele/core/state.js";
import { reportRows } from "abele/core/table.js";
import { forgetTheme } from "abele/core/theme.js";
import { hideTip } from "abele/core/tip.js";
import { VIEWS } from "abele/views/index.js";

const WORDS_AFTER = 100;

export class App {
  constructor(root) {
    this.source = new Source();
    this.state = new State();
    this.keys = new Keys(() => this.commands());
    this.context = new Context(this.source, this.state, this.keys);
    this.loading = new Loading(this.source);
    this.shown = null;
    this.showing = 0;
    this.reporting = 0;
    this.making = false;
    this.missed = new Set();
    this.given = [];
    this.top = h("header.top");
    this.nav = h("nav.nav", { "aria-label": "Views" });
    this.main = h("main.main", { tabindex: "-1" });
    this.status = h("span", { role: "status", "aria-live": "polite" });
    this.notes = h("span");
    this.foot = h("footer.foot", {}, this.status, h("span.grow"), this.notes, h("span", {}, h("kbd", {}, "?"), " keys ", h("kbd", {}, "ctrl+k"), " commands ", h("kbd", {}, "/"), " search"));
    fill(root, this.top, this.nav, this.main, this.foot);
    this.#listen();
  }

  async start() {
    this.#theme();
    this.#navigation();
    this.#begin();
    fill(this.main, this.loading.element);
    try {
      await this.source.open();
    } catch (error) {
      this.loading.end();
      fill(this.main, failure(error));
      return;
    }
    this.source.watch();
    this.#left();
    if (await this.#report()) await this.#show();
  }

  /** The commands that can be given now. */
  commands() {
    return [...this.given, ...(this.shown?.commands ?? [])];
  }

  #listen() {
    this.given = [
      ...VIEWS.map((view) => ({ title: `Show ${view.title.toLowerCase()}`, key: view.key, group: "view", run: () => this.context.go(view.name) })),
      { title: "Commands", key: "ctrl+k", run: () => openPalette(() => this.commands(), (query) => this.#search(query)) },
      { title: "Search", key: "/", run: () => this.#focusFilter() },
      { title: "Keys", key: "?", run: () => openHelp(() => this.commands()) },
      { title: "Dark or light", key: "t", run: () => this.#flip() },
      { title: "Show all of the axis", key: "0", run: () => this.keys.range?.whole() },
      { title: "Save picture as PNG", run: () => this.#save("png") },
      { title: "Save picture as SVG", run: () => this.#save("svg") },
      { title: "Copy a link to what is shown", key: "y", run: () => navigator.clipboard?.writeText(location.href) },
      { title: "Nothing selected", key: "Escape", run: () => this.state.set({ tiles: null, step: null, op: null, variable: null }) },
    ];
    this.state.listen((changed) => this.#changed(changed));
    let timer = 0;
    this.source.addEventListener("busy", ({ detail }) => {
      clearTimeout(timer);
      if (!detail.length) this.status.textContent = "";
      else timer = setTimeout(() => { this.status.textContent = `Loading ${detail.map((n) => WANTED[n] ?? n).join(", ")} …`; }, WORDS_AFTER);
    });
    this.source.addEventListener("changed", ({ detail }) => this.#notice(detail));
    this.source.addEventListener("reached", ({ detail }) => {
      this.notes.textContent = detail ? "" : "The viewer has stopped; what is here stays.";
      this.notes.className = detail ? "" : "warn";
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener?.("change", () => this.#theme());
  }

  async #changed(changed) {
    if (changed.has("theme")) this.#theme();
    if (changed.has("reports") && !(await this.#report())) return;
    const again = !this.shown && !this.making && (changed.has("reports") || changed.has("program"));
    if (!this.context.facts) {
      // The report is still read, or has none: the view is shown when it has.
      this.#navigation();
      return;
    }
    if (changed.has("view") || again) await this.#show();
    // A view that is being made has read the state before: it is told of this when it is there.
    else if (this.making) for (const name of changed) this.missed.add(name);
    else if (this.shown) this.#update(changed);
  }

  #update(changed) {
    this.shown.update(changed);
    if (!changed.has("reports") && !changed.has("program")) return;
    if (!this.loading.element.isConnected) this.main.prepend(this.loading.element);
    this.#begin();
    this.loading.made();
  }

  /** Facts of the report that is shown, and the line on top; false where another was asked for meanwhile, or it has none. */
  async #report() {
    this.reporting += 1;
    const mine = this.reporting;
    try {
      const { head } = await this.context.ask("facts");
      if (mine !== this.reporting) return false;
      this.context.facts = head;
    } catch (error) {
      if (mine !== this.reporting) return false;
      this.#leave();
      fill(this.main, failure(error));
      return false;
    }
    const { facts } = this.context;
    const several = this.source.reports.length > 1;
    const titles = this.source.reports.map((r) => [r.key, r.title]);
    const first = (key) => this.state.set({ reports: [key, ...this.context.reports.filter((k) => k !== key)].join(",") });
    const programs = facts.programs.map((name, i) => [String(i), name || `program ${i}`]);
    fill(this.top, h("span.brand", {}, "Abele"),
      several ? dropdown("Report", titles, this.context.report, first) : h("span.name", { title: facts.title }, facts.title),
      programs.length > 1 ? dropdown("Program", programs, String(this.context.program), (p) => this.state.set({ program: p })) : null,
      h("span.about.dim", {}, `${facts.target.title ?? facts.target.name ?? ""} · ${facts.cycles === null ? "cycles unknown: that part of the file is damaged" : `${cycles(facts.cycles)} = ${seconds(this.context.seconds(facts.cycles))}`}`, facts.fits ? "" : h("b.bad", {}, " · does not fit")),
      h("span.grow"),
      choice("Unit of bytes", [["auto", "auto"], ["B", "B"], ["kB", "kB"], ["KiB", "KiB"]], this.state.get("unit", "auto"), (unit) => this.state.set({ unit: unit === "auto" ? null : unit })),
      h("button.small", { onclick: () => this.#flip(), title: "Dark or light (t)", "aria-label": "Dark or light" }, "◐"));
    document.title = `${facts.title} · Abele`;
    return true;
  }

  /** The outline of the view that comes, and what is read for it. */
  #begin() {
    const known = this.source.reports.find((r) => r.key === this.context.report);
    this.loading.begin(this.#view().title, known ? `${known.title}${known.bytes ? ` (${bytes(known.bytes)})` : ""}` : "");
  }

  /** The view that the state names. */
  #view() {
    return VIEWS.find((v) => v.name === this.state.get("view")) ?? VIEWS[0];
  }

  /** The view that is shown goes away. */
  #leave() {
    this.showing += 1;
    this.making = false;
    this.shown?.destroy();
    this.shown = null;
    this.loading.end();
    this.keys.steer(null);
    hideTip();
  }

  async #show() {
    const view = this.#view();
    this.#leave();
    this.#navigation();
    this.making = true;
    const mine = this.showing;
    const isShown = () => mine === this.showing;
    const place = h(`div.view.view-${view.name}`);
    let made = null;
    this.#begin();
    fill(this.main, this.loading.element, place);
    try {
      const module = await view.load();
      if (!isShown()) return;
      this.missed.clear();
      made = await module.mount(this.context.ofView(isShown), place);
    } catch (error) {
      if (isShown()) fill(this.main, fill(place, failure(error)));
    }
    if (!isShown()) {
      made?.destroy();
      return;
    }
    this.making = false;
    this.shown = made;
    this.loading.made();
    this.main.dataset.view = view.name;
    if (this.missed.size) this.shown?.update(new Set(this.missed));
  }

  /** What a static page does without, in the foot. */
  #left() {
    if (!this.source.isFrozen) return;
    const { left } = this.source.frozen;
    const named = new Set(Object.keys(left).filter((name) => left[name] === "size").map((name) => WANTED[name] ?? name.split(".")[0]));
    this.notes.textContent = named.size ? `Left out for size: details of ${[...named].join(", ")}` : "One file, without a server";
    this.notes.title = "This file holds the pictures and the beginnings of tables; abele view REPORT shows every detail.";
  }

  #navigation() {
    const now = this.#view().name;
    fill(this.nav, VIEWS.map((view) => h(`button${view.name === now ? ".on" : ""}`, { onclick: () => this.context.go(view.name), "aria-current": view.name === now ? "page" : undefined },
      view.title, h("kbd", {}, view.key))));
  }

  #notice(keys) {
    if (this.main.querySelector(".notice")) return;
    const notice = h("div.notice", { role: "status" }, `${keys.map((k) => this.context.title(k)).join(", ")}: the file changed.`,
      h("button.small", { onclick: async () => {
        try {
          await Promise.all(keys.map((key) => this.source.reload(key)));
          if (await this.#report()) await this.#show();
        } catch (error) {
          fill(notice, failure(error));
        }
      } }, "Show it as it is now"),
      h("button.small", { onclick: () => notice.remove() }, "Stay"));
    this.main.prepend(notice);
  }

  /** Names of operations, variables and steps that match, for the palette. */
  async #search(query) {
    const tile = /^tile\s+(\d+)$/i.exec(query);
    if (tile) return [{ title: `Tile ${tile[1]}`, group: "tile", run: () => this.context.go("memory", { tiles: tile[1] }) }];
    const kinds = [["ops", "operation", "op", "operations"], ["variables", "variable", "variable", "memory"], ["steps", "step", "step", "program"]];
    const found = await Promise.all(kinds.map(async ([of, group, name, view]) => {
      const { rows } = await reportRows(this.context, of, this.source.isFrozen ? {} : { columns: "name" })({ filter: query, sort: "", first: 0, count: 12 });
      return rows.map((row) => ({ title: row.name, group, run: () => this.context.go(view, { [name]: row.row }) }));
    }));
    return found.flat();
  }

  #focusFilter() {
    const filter = this.main.querySelector("input[type=search]");
    if (filter) filter.focus();
    else openPalette(() => this.commands(), (query) => this.#search(query));
  }

  #theme() {
    const wanted = this.state.get("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = wanted;
    forgetTheme();
    for (const chart of this.shown?.charts ?? []) chart.redraw();
    this.shown?.update(new Set(["theme"]));
  }

  #flip() {
    this.state.set({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
  }

  async #save(format) {
    const charts = this.shown?.charts ?? [];
    if (!charts.length) {
      dialog("No picture", h("div.help", {}, "This view has no picture; its tables can be saved as CSV."));
      return;
    }
    for (const chart of charts) {
      const name = `${this.context.report}-${chart.name}.${format}`;
      if (format === "png") download(name, await chart.png(), "image/png");
      else download(name, chart.svg(), "image/svg+xml");
    }
  }
}
