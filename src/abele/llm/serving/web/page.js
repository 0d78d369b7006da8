// The page: a conversation, what its tokens cost, settings.

import { fill, h } from "abele/core/dom.js";
import * as format from "abele/core/format.js";
import { forgetTheme } from "abele/core/theme.js";
import { hideTip } from "abele/core/tip.js";

import { AnswerText, question, tokenLines } from "chat/conversation.js";
import { chunks, fetched } from "chat/events.js";
import { Settings } from "chat/settings.js";
import { showStep } from "chat/step.js";
import { TokenStrip } from "chat/strip.js";
import { figures, isModelled, piece } from "chat/tokens.js";

const NEAR_BOTTOM = 80;

export class ChatPage {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.turns = [];
    this.answer = null;
    this.abort = null;
    this.machine = null;
    this.settings = new Settings();
    this.settings.key.addEventListener("change", () => this.#learn());
    this.strip = new TokenStrip({ chosen: (index) => this.answer?.point(index), lines: (index) => tokenLines(this.answer.timed[index], index, isModelled(this.answer.pieces)) });
    this.log = h("div.log", { role: "log", "aria-label": "conversation", tabindex: "0" });
    this.input = h("textarea.ask", { rows: "2", placeholder: "Ask something", "aria-label": "message", autofocus: true });
    this.button = h("button.small.go", { type: "submit" }, "Send");
    this.figures = h("div.figures", { "aria-live": "off" });
    this.step = h("section.panel", { "aria-label": "where a step's cycles go" });
    this.about = h("span.about.dim", {});
    this.name = h("span.name", {});
  }

  /** Show the page and ask the server what it has. */
  async start() {
    document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    this.times = h("input", { type: "checkbox", id: "times" });
    this.times.addEventListener("change", () => this.log.classList.toggle("timed", this.times.checked));
    const form = h("form.composer", { "aria-label": "message" }, this.input, h("div.actions", {}, this.button, h("button.small", { type: "button", onclick: () => this.clear() }, "New")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.abort) this.abort.abort();
      else this.send();
    });
    fill(this.root,
      h("header.top", {}, h("span.brand", {}, "Abele"), this.name, this.about, h("span.grow", {}),
        h("label.toggle", { title: "time over each token" }, this.times, "times"),
        h("button.small", { type: "button", title: "light or dark", onclick: () => this.#otherTheme() }, "theme")),
      h("main.talk", {}, this.log, form),
      h("aside.side", { "aria-label": "costs and settings" },
        h("section.panel", { "aria-label": "last answer" }, h("h2", {}, "Last answer"), this.figures, this.strip.element),
        this.step,
        h("details.panel", { open: innerWidth > 900 }, h("summary", {}, "Settings"), this.settings.element),
        h("p.dim.keys", {}, h("kbd", {}, "Enter"), " sends, ", h("kbd", {}, "Shift Enter"), " makes a line, ", h("kbd", {}, "Esc"), " stops, ", h("kbd", {}, "/"), " goes to the message")));
    this.#showFigures([]);
    addEventListener("keydown", (event) => this.#key(event));
    await this.#learn();
    this.input.focus();
  }

  /** Forget the conversation. */
  clear() {
    this.abort?.abort();
    this.turns = [];
    this.answer = null;
    fill(this.log);
    this.#showFigures([]);
    this.strip.show([]);
    this.input.focus();
  }

  /** Send what is written. */
  async send() {
    const text = this.input.value.trim();
    if (!text || !this.machine) return;
    this.input.value = "";
    const before = this.turns;
    const answer = new AnswerText((index) => this.strip.point(answer === this.answer ? index : null));
    this.answer = answer;
    this.abort = new AbortController();
    fill(this.button, "Stop");
    this.log.append(question(text), answer.element);
    this.log.scrollTop = this.log.scrollHeight;
    answer.say("waiting for a turn …");
    try {
      await this.#read(answer, [...before, { role: "user", content: text }]);
      if (this.answer === answer) this.turns = [...before, { role: "user", content: text }, { role: "assistant", content: answer.content }];
    } catch (error) {
      const stopped = error.name === "AbortError";
      answer.say(stopped ? "stopped" : sentence(error), !stopped);
      // What was refused can be mended and sent again.
      if (!answer.pieces.length && !stopped && !this.input.value) this.input.value = text;
      if (answer.pieces.length && this.answer === answer) this.turns = [...before, { role: "user", content: text }, { role: "assistant", content: answer.content }];
    }
    this.abort = null;
    fill(this.button, "Send");
  }

  async #read(answer, turns) {
    const system = this.settings.system.value.trim();
    const messages = system ? [{ role: "system", content: system }, ...turns] : turns;
    const said = this.machine.chat ? { messages } : { prompt: turns.at(-1).content };
    const body = { model: this.machine.model, stream: true, ...said, ...this.settings.values() };
    const path = this.machine.chat ? "/v1/chat/completions" : "/v1/completions";
    let [before, reason] = [performance.now(), null];
    for await (const chunk of chunks(path, body, this.settings.key.value, this.abort.signal)) {
      const now = performance.now();
      const found = piece(chunk, (now - before) / 1000);
      reason = chunk.choices?.[0]?.finish_reason ?? reason;
      if (!found) continue;
      before = now;
      this.#add(answer, found);
    }
    const made = figures(answer.pieces);
    answer.say(`${format.count(made.tokens)} tokens, ${reason === "length" ? "cut off at the limit" : "ended by itself"}`);
  }

  #add(answer, found) {
    const near = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR_BOTTOM;
    answer.add(found);
    answer.say("");
    if (near) this.log.scrollTop = this.log.scrollHeight;
    if (answer !== this.answer) return;
    this.strip.show(answer.pieces);
    this.#showFigures(answer.pieces);
  }

  #showFigures(pieces) {
    const made = figures(pieces);
    const modelled = isModelled(pieces);
    const rows = [["tokens", format.count(made.tokens)]];
    if (modelled) rows.push(["first token, modelled", format.seconds(made.first)], ["per token, modelled", format.seconds(made.perToken)], ["tokens/s, modelled", format.short(made.rate)]);
    rows.push(["tokens/s on this host", made.tokens ? format.short(made.hostRate) : "–"]);
    fill(this.figures, rows.map(([name, value]) => h("div", {}, h("div.figure-value", {}, value), h("div.figure-name", {}, name))));
  }

  async #learn() {
    try {
      this.machine = await fetched("/abele/machine", this.settings.key.value);
      fill(this.name, this.machine.model);
      const limit = `${format.count(this.machine.positions)} positions`;
      fill(this.about, [this.machine.machine, limit].filter(Boolean).join(" · "));
      this.about.classList.remove("bad");
      showStep(this.step, this.machine.step);
    } catch (error) {
      fill(this.about, error.status === 401 ? "give the server's key in the settings" : sentence(error));
      this.about.classList.add("bad");
      showStep(this.step, null);
    }
  }

  #otherTheme() {
    const { dataset } = document.documentElement;
    dataset.theme = dataset.theme === "dark" ? "light" : "dark";
    forgetTheme();
    this.strip.chart.redraw();
  }

  #key(event) {
    if (event.key === "Escape") {
      hideTip();
      this.abort?.abort();
    } else if (event.target === this.input && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.abort) this.send();
    } else if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      this.input.focus();
    }
  }
}

function sentence(error) {
  const again = error.retryAfter ? ` (again in ${error.retryAfter} s)` : "";
  return `${error.message}${again}`;
}
