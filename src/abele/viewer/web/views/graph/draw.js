// The picture of the graph: modules that are open as boxes, nodes toned by a metric, edges as curves.

import { count, fitted } from "abele/core/format.js";

/** What a node is: an operation, a module that is closed or open, the cheapest others of a module. */
export const [OP, MODULE, OPENED, REST] = [0, 1, 2, 3];

/** The part of a colour scale that a value has; small ones stay apart. */
export function shade(value, most) {
  return most > 0 && value > 0 ? Math.sqrt(Math.min(1, value / most)) : 0;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("abele/core/chart.js").Place} place
 * @param {object} picture
 * @param {any} picture.data  the answer to "graph"
 * @param {number[][]} picture.edges  edges of each node
 * @param {number[]} picture.most  greatest value of each metric
 * @param {number} picture.chosen  node, −1 for none
 * @param {Set<number>|null} picture.hits  nodes that a search found; null while nothing is searched for
 * @param {import("abele/core/plane.js").Plane} picture.plane
 * @param {string} picture.metric
 * @param {boolean} picture.names  whether all edges have the names of their tensors
 * @param {boolean} picture.rounds  whether edges of loops are drawn
 * @param {(name: string, value: number) => string} picture.brief  a value of a metric in a few letters
 */
export function drawGraph(context, { width, height, theme: colours }, picture) {
  const { data: { head, arrays }, most, chosen, hits, plane: { x, y, scale }, brief } = picture;
  const metric = Math.max(0, head.metrics.indexOf(picture.metric));
  const k = head.metrics.length;
  context.save();
  context.translate(x, y);
  context.scale(scale, scale);
  const [left, top, right, bottom] = [-x / scale, -y / scale, (width - x) / scale, (height - y) / scale];
  const seen = (i) => arrays.x[i] < right && arrays.x[i] + arrays.w[i] > left && arrays.y[i] < bottom && arrays.y[i] + arrays.h[i] > top;
  context.font = "12px system-ui, sans-serif";
  for (let i = 0; i < arrays.node.length; i += 1) {
    if (arrays.kind[i] !== OPENED || !seen(i)) continue;
    context.fillStyle = colours.hover;
    context.globalAlpha = 0.5;
    context.fillRect(arrays.x[i], arrays.y[i], arrays.w[i], arrays.h[i]);
    context.globalAlpha = 1;
    context.lineWidth = i === chosen ? 2 / scale : 1 / scale;
    context.strokeStyle = i === chosen ? colours.accent : colours.rule;
    context.strokeRect(arrays.x[i], arrays.y[i], arrays.w[i], arrays.h[i]);
    if (scale > 0.3) {
      context.fillStyle = colours.dim;
      context.fillText(fitted(context, `▾ ${head.labels[i]}`, arrays.w[i] - 12), arrays.x[i] + 6, arrays.y[i] + 16);
    }
  }
  drawEdges(context, colours, picture);
  for (let i = 0; i < arrays.node.length; i += 1) {
    if (arrays.kind[i] === OPENED || !seen(i)) continue;
    const tinted = metric === head.metrics.indexOf("balance") ? arrays.metric[i * k + metric] : shade(arrays.metric[i * k + metric], most[metric]);
    const tone = Math.round(tinted * 255);
    context.globalAlpha = hits && !hits.has(i) ? 0.3 : 1;
    context.fillStyle = colours.heat[tone];
    const [bx, by, bw, bh] = [arrays.x[i], arrays.y[i], arrays.w[i], arrays.h[i]];
    context.fillRect(bx, by, bw, bh);
    context.lineWidth = (i === chosen ? 3 : arrays.kind[i] === OP ? 1 : 1.6) / Math.max(scale, 0.5);
    context.strokeStyle = i === chosen ? colours.accent : colours.dim;
    context.strokeRect(bx, by, bw, bh);
    if (arrays.kind[i] !== OP) context.strokeRect(bx + 2.5, by + 2.5, bw - 5, bh - 5);
    if (scale > 0.35) {
      context.fillStyle = colours.dark ? (tone > 150 ? "#101418" : "#f2f5f8") : (tone > 110 ? "#ffffff" : "#14181d");
      const mark = arrays.kind[i] === MODULE ? "▸ " : "";
      context.fillText(fitted(context, mark + head.labels[i], bw - 12), bx + 7, by + 15);
      context.font = "10px system-ui, sans-serif";
      const below = arrays.kind[i] === OP ? "" : `${count(arrays.count[i])} ops · `;
      context.fillText(fitted(context, below + brief(head.metrics[metric], arrays.metric[i * k + metric]), bw - 12), bx + 7, by + 28);
      context.font = "12px system-ui, sans-serif";
    }
    context.globalAlpha = 1;
  }
  context.restore();
}

function drawEdges(context, colours, { data: { head, arrays }, edges, chosen, plane: { scale }, rounds, names }) {
  const mine = new Set(chosen >= 0 ? edges[chosen] : []);
  const line = (e) => {
    const [a, b] = [arrays.first[e], arrays.first[e + 1]];
    const px = (p) => arrays.points[2 * p];
    const py = (p) => arrays.points[2 * p + 1];
    context.moveTo(px(a), py(a));
    for (let p = a + 1; p < b; p += 1) {
      const middle = (py(p - 1) + py(p)) / 2;
      context.bezierCurveTo(px(p - 1), middle, px(p), middle, px(p), py(p));
    }
    // A small arrow where it ends.
    const up = py(b - 1) < py(b - 2) ? 5 : -5;
    context.moveTo(px(b - 1) - 3, py(b - 1) + up);
    context.lineTo(px(b - 1), py(b - 1));
    context.lineTo(px(b - 1) + 3, py(b - 1) + up);
  };
  const draw = (which, colour, thick, dash) => {
    context.strokeStyle = colour;
    context.lineWidth = thick / Math.max(scale, 0.4);
    context.setLineDash(dash);
    context.beginPath();
    let any = false;
    for (let e = 0; e < arrays.from.length; e += 1) {
      if (!which(e)) continue;
      line(e);
      any = true;
    }
    if (any) context.stroke();
    context.setLineDash([]);
  };
  context.globalAlpha = mine.size ? 0.35 : 0.75;
  draw((e) => !mine.has(e) && !arrays.round[e] && arrays.num[e] > 0, colours.dim, 0.9, []);
  draw((e) => !mine.has(e) && arrays.num[e] === 0, colours.dim, 0.8, [2, 3]);
  if (rounds) draw((e) => !mine.has(e) && arrays.round[e] && arrays.num[e] > 0, colours.series[3], 0.9, [6, 4]);
  context.globalAlpha = 1;
  draw((e) => mine.has(e), colours.accent, 1.8, []);
  if (scale < 0.5) return;
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "center";
  for (let e = 0; e < arrays.from.length; e += 1) {
    if (!(names || mine.has(e)) || !head.tensors[e] || (arrays.round[e] && !rounds)) continue;
    const [a, b] = [arrays.first[e], arrays.first[e + 1]];
    const p = Math.floor((a + b - 1) / 2);
    const [lx, ly] = [(arrays.points[2 * p] + arrays.points[2 * p + 2]) / 2, (arrays.points[2 * p + 1] + arrays.points[2 * p + 3]) / 2];
    const text = `${head.tensors[e].split("\n")[1]}${arrays.num[e] > 1 ? ` +${arrays.num[e] - 1}` : ""}`;
    const wide = context.measureText(text).width;
    context.fillStyle = colours.panel;
    context.globalAlpha = 0.85;
    context.fillRect(lx - wide / 2 - 2, ly - 8, wide + 4, 12);
    context.globalAlpha = 1;
    context.fillStyle = mine.has(e) ? colours.accent : colours.dim;
    context.fillText(text, lx, ly + 2);
  }
  context.textAlign = "start";
  context.font = "12px system-ui, sans-serif";
}
