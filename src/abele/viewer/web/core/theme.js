// Colours for canvases, read from the styles of the page, so that one sheet says them for both.

const NAMES = ["back", "panel", "ink", "dim", "rule", "accent", "hover", "warn", "bad", "good"];
/** What cycles go to, in the order in which they are stacked. */
export const PARTS = ["compute", "arrange", "exchange", "replicas", "sync", "host", "memory", "idle"];
const SERIES = 12;

/**
 * @typedef {{back: string, panel: string, ink: string, dim: string, rule: string, accent: string, hover: string, warn: string,
 *   bad: string, good: string, parts: Object<string, string>, series: string[], heat: string[], font: string, dark: boolean}} Theme
 */
let kept = null;

/** @returns {Theme} */
export function theme() {
  if (kept) return kept;
  const styles = getComputedStyle(document.documentElement);
  const colour = (name) => styles.getPropertyValue(`--${name}`).trim();
  kept = Object.fromEntries(NAMES.map((name) => [name, colour(name)]));
  kept.parts = Object.fromEntries(PARTS.map((name) => [name, colour(`part-${name}`)]));
  kept.series = Array.from({ length: SERIES }, (_, i) => colour(`series-${i}`));
  kept.dark = document.documentElement.dataset.theme === "dark";
  kept.heat = heat(kept.dark);
  kept.font = "12px system-ui, sans-serif";
  return kept;
}

/** Forget the colours: the theme changed. */
export function forgetTheme() {
  kept = null;
}

/** 256 colours from little to much; cividis-like, which people with any colour vision can order. */
function heat(dark) {
  const stops = dark
    ? [[20, 28, 48], [40, 66, 120], [96, 106, 128], [160, 146, 104], [218, 192, 74], [255, 234, 110]]
    : [[236, 240, 246], [170, 190, 220], [104, 132, 178], [72, 92, 128], [92, 84, 72], [60, 44, 12]];
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const mix = stops[low].map((c, k) => Math.round(c + (stops[low + 1][k] - c) * (place - low)));
    return `rgb(${mix.join(",")})`;
  });
}
