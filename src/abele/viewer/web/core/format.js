// Numbers as people read them. Pure functions.

const group = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const PREFIXES = ["", "k", "M", "G", "T", "P"];

/** A whole number with its thousands apart: 1,234,567. */
export function count(value) {
  return Number.isFinite(value) ? group.format(value) : "–";
}

/** A number with three digits and a prefix: 1.23 M. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  let size = Math.abs(value);
  let step = 0;
  while (size >= 999.5 && step < PREFIXES.length - 1) {
    size /= 1000;
    step += 1;
  }
  const text = digits(size);
  return `${value < 0 ? "−" : ""}${text}${PREFIXES[step] ? " " + PREFIXES[step] : ""}`;
}

function digits(size) {
  if (size === 0) return "0";
  if (size >= 99.95) return size.toFixed(0);
  if (size >= 9.995) return trimmed(size.toFixed(1));
  if (size >= 0.9995) return trimmed(size.toFixed(2));
  return trimmed(size.toPrecision(2));
}

function trimmed(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

const UNITS = { B: 1, kB: 1000, KiB: 1024 };

/** Bytes; the unit is the user's: "auto", "B", "kB" or "KiB". */
export function bytes(value, unit = "auto") {
  if (!Number.isFinite(value)) return "–";
  if (unit === "B") return `${count(value)} B`;
  if (unit in UNITS) {
    const size = value / UNITS[unit];
    return `${Math.abs(size) < 9.995 && size !== Math.round(size) ? `${size < 0 ? "−" : ""}${digits(Math.abs(size))}` : group.format(size)} ${unit}`;
  }
  const text = short(value);
  return text.includes(" ") ? `${text}B` : `${text} B`;
}

/** Cycles. */
export function cycles(value) {
  return `${short(value)}${Math.abs(value) >= 999.5 ? "" : " "}cycles`.replace(/ ([kMGTP])cycles/, " $1 cycles");
}

/** A time. */
export function seconds(value) {
  return prefixed(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
}

/** An energy. */
export function joules(value) {
  return prefixed(value, [[1e3, "kJ"], [1, "J"], [1e-3, "mJ"], [1e-6, "µJ"], [1e-9, "nJ"], [1e-12, "pJ"]]);
}

/** A value with the prefix that suits its size. */
export function prefixed(value, units) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return `0 ${units.find(([limit]) => limit === 1)[1]}`;
  const size = Math.abs(value);
  const [limit, unit] = units.find(([least]) => size >= least * 0.9995) ?? units.at(-1);
  return `${value < 0 ? "−" : ""}${digits(size / limit)} ${unit}`;
}

/** A part of a whole. */
export function percent(part) {
  if (!Number.isFinite(part)) return "–";
  const value = part * 100;
  return `${Math.abs(value) >= 9.95 ? value.toFixed(0) : value.toFixed(1)}%`;
}

/** A difference with its sign. */
export function signed(value, show = count) {
  return value > 0 ? `+${show(value)}` : value < 0 ? `−${show(-value)}` : "0";
}

/**
 * Round places for the marks of an axis.
 * @param {number} low @param {number} high @param {number} most  marks at most
 * @returns {{step: number, marks: number[]}}
 */
export function marks(low, high, most) {
  const span = high - low;
  if (!(span > 0) || most < 1) return { step: 0, marks: [] };
  const raw = span / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw * (1 - 1e-9));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
  return { step, marks: found };
}

/** Text cut to a width in pixels, as the context's font has it. */
export function fitted(context, text, width) {
  if (width < 12) return "";
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}

/**
 * Numbers in text: "3, 10-12" is [[3, 3], [10, 12]].
 * @returns {Array<[number, number]>|null} null where the text is none
 */
export function ranges(text) {
  const found = [];
  for (const part of text.split(",").map((p) => p.trim()).filter(Boolean)) {
    const match = /^(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(part);
    if (!match) return null;
    const [low, high] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (high < low) return null;
    found.push([low, high]);
  }
  return found;
}
