// Settings of requests: fields, their defaults, and what a request says of them.

import { h } from "abele/core/dom.js";

const FIELDS = [
  { name: "temperature", title: "temperature", value: 0.7, least: 0, most: 2, step: 0.1, about: "0 takes the likeliest token" },
  { name: "top_p", title: "top p", value: 0.95, least: 0, most: 1, step: 0.05, about: "probability that the tokens to draw from cover" },
  { name: "top_k", title: "top k", value: 0, least: 0, most: 1e6, step: 1, whole: true, about: "number of tokens to draw from; 0 for all" },
  { name: "min_p", title: "min p", value: 0, least: 0, most: 1, step: 0.01, about: "least probability, as a part of the likeliest token's" },
  { name: "repetition_penalty", title: "repetition penalty", value: 1, least: 0.01, most: 100, step: 0.05, about: "1 for none" },
  { name: "max_tokens", title: "most tokens", value: 256, least: 1, most: 1e6, step: 1, whole: true, about: "length of an answer" },
  { name: "seed", title: "seed", value: "", least: -(2 ** 53), most: 2 ** 53, step: 1, whole: true, about: "the same seed makes the same text; empty for any" },
];

/** The value of a field as a request has it, or undefined. */
export function read(field, text) {
  const value = Number(text);
  if (String(text).trim() === "" || !Number.isFinite(value)) return undefined;
  const inside = Math.min(field.most, Math.max(field.least, value));
  return field.whole ? Math.round(inside) : inside;
}

export class Settings {
  constructor() {
    this.inputs = Object.fromEntries(FIELDS.map((field) => [field.name, input(field)]));
    this.system = h("textarea", { id: "system", rows: "2", "aria-label": "system message", placeholder: "the template's own" });
    this.key = h("input", { type: "password", id: "key", autocomplete: "off", "aria-label": "key of the server" });
    this.element = h("form.settings", { onsubmit: (event) => event.preventDefault() },
      FIELDS.map((field) => h("label", { title: field.about }, h("span", {}, field.title), this.inputs[field.name])),
      h("label.wide", {}, h("span", {}, "system message"), this.system),
      h("label.wide", { title: "only where the server was started with one" }, h("span", {}, "key"), this.key));
  }

  /** Fields of a request. */
  values() {
    const found = {};
    for (const field of FIELDS) {
      const value = read(field, this.inputs[field.name].value);
      if (value !== undefined) found[field.name] = value;
    }
    return found;
  }
}

function input(field) {
  return h("input", { type: "number", id: field.name, value: field.value, min: field.least, max: field.most, step: field.step, "aria-label": field.title });
}
