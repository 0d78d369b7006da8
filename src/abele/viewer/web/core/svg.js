// A drawing context that writes SVG: charts draw into it as into a canvas, with the part of the canvas's names they use.

const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd");
const n = (value) => (Math.round(value * 100) / 100).toString();

/** The part of CanvasRenderingContext2D that charts use, recorded as SVG. Measures text with a real canvas. */
export class SvgContext {
  constructor(width, height) {
    this.size = [width, height];
    this.parts = [];
    this.clips = 0;
    this.path = "";
    this.stack = [];
    this.measure = document.createElement("canvas").getContext("2d");
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "12px sans-serif", textAlign: "start", textBaseline: "alphabetic", dash: [], matrix: [1, 0, 0, 1, 0, 0], open: 0, imageSmoothingEnabled: true });
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline, dash, matrix, open } = this;
    this.stack.push({ fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign, textBaseline, dash, matrix: [...matrix], open });
    this.open = 0;
  }

  restore() {
    const before = this.stack.pop();
    if (!before) return;
    this.parts.push("</g>".repeat(this.open));
    Object.assign(this, before);
  }

  translate(x, y) { this.transform(1, 0, 0, 1, x, y); }
  scale(x, y) { this.transform(x, 0, 0, y, 0, 0); }
  rotate(angle) { this.transform(Math.cos(angle), Math.sin(angle), -Math.sin(angle), Math.cos(angle), 0, 0); }
  setTransform(a, b, c, d, e, f) { this.matrix = [a, b, c, d, e, f]; }
  transform(a, b, c, d, e, f) {
    const [A, B, C, D, E, F] = this.matrix;
    this.matrix = [A * a + C * b, B * a + D * b, A * c + C * d, B * c + D * d, A * e + C * f + E, B * e + D * f + F];
  }
  setLineDash(dash) { this.dash = dash; }
  beginPath() { this.path = ""; }
  closePath() { this.path += "Z"; }
  moveTo(x, y) { this.path += `M${n(x)} ${n(y)}`; }
  lineTo(x, y) { this.path += `${this.path ? "L" : "M"}${n(x)} ${n(y)}`; }
  rect(x, y, w, height) { this.path += `M${n(x)} ${n(y)}h${n(w)}v${n(height)}h${n(-w)}Z`; }
  quadraticCurveTo(a, b, x, y) { this.path += `Q${n(a)} ${n(b)} ${n(x)} ${n(y)}`; }
  bezierCurveTo(a, b, c, d, x, y) { this.path += `C${n(a)} ${n(b)} ${n(c)} ${n(d)} ${n(x)} ${n(y)}`; }
  arc(x, y, r, from, to) {
    const whole = Math.abs(to - from) >= Math.PI * 2 - 1e-6;
    const at = (angle) => `${n(x + r * Math.cos(angle))} ${n(y + r * Math.sin(angle))}`;
    this.path += whole
      ? `M${at(from)}A${n(r)} ${n(r)} 0 1 1 ${at(from + Math.PI)}A${n(r)} ${n(r)} 0 1 1 ${at(from)}Z`
      : `${this.path ? "L" : "M"}${at(from)}A${n(r)} ${n(r)} 0 ${to - from > Math.PI ? 1 : 0} 1 ${at(to)}`;
  }
  fill() { this.#add(`<path d="${this.path}" ${this.#filled()}/>`); }
  stroke() { this.#add(`<path d="${this.path}" fill="none" ${this.#stroked()}/>`); }
  fillRect(x, y, w, height) { this.#add(`<rect ${this.#box(x, y, w, height)} ${this.#filled()}/>`); }
  strokeRect(x, y, w, height) { this.#add(`<rect ${this.#box(x, y, w, height)} fill="none" ${this.#stroked()}/>`); }
  clearRect() {}
  clip() {
    this.clips += 1;
    this.parts.push(`<clipPath id="c${this.clips}"><path d="${this.path}"${this.#moved()}/></clipPath><g clip-path="url(#c${this.clips})">`);
    this.open += 1;
  }
  fillText(text, x, y) {
    const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] ?? "start";
    const base = { middle: "central", top: "hanging", bottom: "text-after-edge" }[this.textBaseline] ?? "alphabetic";
    this.#add(`<text x="${n(x)}" y="${n(y)}" text-anchor="${anchor}" dominant-baseline="${base}" style="font:${escape(this.font)}" ${this.#filled()}>${escape(text)}</text>`);
  }
  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }
  drawImage(image, ...where) {
    const [sx, sy, sw, sh, x, y, w, height] = where.length === 8 ? where : [0, 0, image.width, image.height, where[0], where[1], where[2] ?? image.width, where[3] ?? image.height];
    const part = document.createElement("canvas");
    part.width = Math.max(1, Math.round(Math.min(sw, 4096)));
    part.height = Math.max(1, Math.round(Math.min(sh, 4096)));
    const pen = part.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.drawImage(image, sx, sy, sw, sh, 0, 0, part.width, part.height);
    this.#add(`<image ${this.#box(x, y, w, height)} preserveAspectRatio="none" style="image-rendering:pixelated" href="${part.toDataURL("image/png")}"/>`);
  }

  /** The drawing as a document. */
  text() {
    const [width, height] = this.size;
    const ends = "</g>".repeat(this.open + this.stack.reduce((sum, s) => sum + s.open, 0));
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${n(width)}" height="${n(height)}" viewBox="0 0 ${n(width)} ${n(height)}">${this.parts.join("")}${ends}</svg>\n`;
  }

  #box(x, y, w, height) {
    return `x="${n(Math.min(x, x + w))}" y="${n(Math.min(y, y + height))}" width="${n(Math.abs(w))}" height="${n(Math.abs(height))}"`;
  }
  #filled() { return `fill="${escape(this.fillStyle)}"${this.#alpha()}`; }
  #stroked() {
    return `stroke="${escape(this.strokeStyle)}" stroke-width="${n(this.lineWidth)}"${this.dash.length ? ` stroke-dasharray="${this.dash.map(n).join(" ")}"` : ""}${this.#alpha()}`;
  }
  #alpha() { return this.globalAlpha < 1 ? ` opacity="${n(this.globalAlpha)}"` : ""; }
  #moved() {
    const [a, b, c, d, e, f] = this.matrix;
    return a === 1 && !b && !c && d === 1 && !e && !f ? "" : ` transform="matrix(${[a, b, c, d, e, f].map(n).join(" ")})"`;
  }
  #add(markup) {
    const moved = this.#moved();
    this.parts.push(moved ? markup.replace(/ ?\/?>/, (end) => `${moved}${end}`) : markup);
  }
}
