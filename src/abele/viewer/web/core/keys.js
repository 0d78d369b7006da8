// The keyboard: commands by key, and W A S D to fly, as in Perfetto. Keys are left alone while an input has the focus.

const FLIGHT = { w: [-1, 0], s: [1, 0], a: [0, -1], d: [0, 1] };
const ZOOM_A_SECOND = 3.5;
const WINDOWS_A_SECOND = 1.6;

/** True if what has the focus wants the keys for itself. */
export function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

/** The name of a key press: "ctrl+k", "?", "n", and "N" with shift, whatever caps lock says. */
export function keyName(event) {
  const key = event.key.length > 1 ? event.key : event.shiftKey ? event.key.toUpperCase() : event.key.toLowerCase();
  return `${event.ctrlKey || event.metaKey ? "ctrl+" : ""}${event.altKey ? "alt+" : ""}${key}`;
}

/** Runs commands by their keys, and flies over an axis. */
export class Keys {
  /** @param {() => Array<{title: string, key?: string, run: () => void}>} commands  those that can be given now */
  constructor(commands, target = document) {
    this.commands = commands;
    this.range = null;
    this.held = new Set();
    this.last = 0;
    target.addEventListener("keydown", (event) => this.#down(event));
    target.addEventListener("keyup", (event) => this.held.delete(event.key.toLowerCase()));
    globalThis.addEventListener("blur", () => this.held.clear());
  }

  /** The range that W A S D steer; null for none. */
  steer(range) {
    this.range = range;
  }

  #down(event) {
    // A dialog has the keyboard for itself, Escape above all.
    if (document.querySelector("dialog[open]") || (typing(event.target) && event.key !== "Escape")) return;
    const name = keyName(event);
    const flight = name.toLowerCase();
    if (this.range && flight in FLIGHT) {
      if (!this.held.size) {
        this.last = performance.now();
        // One press moves at once, however short it is.
        this.held.add(flight);
        this.#fly(this.last + 16);
        requestAnimationFrame((now) => this.#frame(now));
      }
      this.held.add(flight);
      event.preventDefault();
      return;
    }
    const command = this.commands().findLast((c) => c.key === name);
    if (command) {
      event.preventDefault();
      command.run();
    }
  }

  #frame(now) {
    if (!this.held.size || !this.range) return;
    this.#fly(now);
    requestAnimationFrame((next) => this.#frame(next));
  }

  #fly(now) {
    const passed = Math.min(Math.max(now - this.last, 0), 50) / 1000;
    this.last = now;
    let zoom = 0;
    let move = 0;
    for (const key of this.held) {
      zoom += FLIGHT[key]?.[0] ?? 0;
      move += FLIGHT[key]?.[1] ?? 0;
    }
    if (zoom) this.range.zoom(Math.exp(zoom * ZOOM_A_SECOND * passed));
    if (move) this.range.move(move * WINDOWS_A_SECOND * passed);
  }
}
