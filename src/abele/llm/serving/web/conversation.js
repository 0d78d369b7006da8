// The messages: text of people as it is, text of the model token by token.

import { fill, h } from "abele/core/dom.js";
import * as format from "abele/core/format.js";
import { tip } from "abele/core/tip.js";

import { isModelled, perToken } from "chat/tokens.js";

/** Lines of the tip of a token. @param {import("./tokens.js").Piece} piece @param {number} index @param {boolean} modelled */
export function tokenLines(piece, index, modelled) {
  const lines = [`token ${index + 1}`, ["id", piece.ids.join(", ")]];
  if (modelled) lines.push(["modelled", format.seconds(perToken(piece, true))], ["cycles", format.count(piece.cycles / Math.max(1, piece.ids.length))]);
  lines.push(["on this host", format.seconds(piece.host / Math.max(1, piece.ids.length))]);
  return lines;
}

/** An answer that grows. */
export class AnswerText {
  /** @param {(index: number|null) => void} chosen  called with the token that the pointer is on */
  constructor(chosen) {
    this.pieces = [];
    this.spans = [];
    this.text = h("div.said", {});
    this.status = h("div.status.dim", { role: "status" });
    this.element = h("article.message.model", { "aria-label": "answer" }, h("h3", {}, "model"), this.text, this.status);
    this.text.addEventListener("pointermove", (event) => {
      const index = this.spans.indexOf(event.target);
      chosen(index < 0 ? null : index);
      tip(event, index < 0 ? null : tokenLines(this.timed[index], index, isModelled(this.pieces)));
    });
    this.text.addEventListener("pointerleave", (event) => {
      chosen(null);
      tip(event, null);
    });
  }

  /** Pieces with a token: those that the strip shows. */
  get timed() {
    return this.pieces.filter((piece) => piece.ids.length);
  }

  /** The whole text. */
  get content() {
    return this.pieces.map((piece) => piece.text).join("");
  }

  /** Add a piece. */
  add(piece) {
    this.pieces.push(piece);
    if (!piece.ids.length) {
      this.text.append(piece.text);
      return;
    }
    const span = h("span.token", { "data-time": format.seconds(perToken(piece, piece.seconds > 0)) }, piece.text);
    this.spans.push(span);
    this.text.append(span);
  }

  /** Mark a token, or none. */
  point(index) {
    this.spans.forEach((span, i) => span.classList.toggle("pointed", i === index));
  }

  /** Say how it went. */
  say(text, isBad = false) {
    fill(this.status, text);
    this.status.classList.toggle("bad", isBad);
  }
}

/** What somebody asked. */
export function question(text) {
  return h("article.message.user", { "aria-label": "question" }, h("h3", {}, "you"), h("div.said", {}, text));
}
