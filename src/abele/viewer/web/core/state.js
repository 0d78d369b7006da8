// What the page shows, as names and texts in the address: a link restores it.

/** Names and texts after the # of an address. */
export function parsed(hash) {
  return new Map(new URLSearchParams(hash.replace(/^#/, "")));
}

/** The # of an address that holds these. */
export function written(values) {
  const text = new URLSearchParams([...values].sort(([a], [b]) => (a < b ? -1 : 1))).toString();
  return text ? `#${text}` : "#";
}

/**
 * The state of the page. Listeners get the set of names that changed.
 * Shared names: "view", "reports" (keys, commas), "theme", "unit", and the selection: "tiles" (ranges as text), "step", "op",
 * "variable" (rows), "from" and "to" (cycles), "program". Names of one view begin with its name and a dot.
 */
export class State {
  constructor(place = globalThis.location, past = globalThis.history) {
    this.place = place;
    this.past = past;
    this.values = parsed(place.hash);
    this.listeners = new Set();
    this.timer = 0;
    globalThis.addEventListener?.("hashchange", () => this.#read());
    globalThis.addEventListener?.("popstate", () => this.#read());
  }

  get(name, otherwise = "") {
    return this.values.get(name) ?? otherwise;
  }

  number(name, otherwise = NaN) {
    const text = this.values.get(name);
    if (text === undefined || text === "") return otherwise;
    const value = Number(text);
    return Number.isFinite(value) ? value : otherwise;
  }

  /**
   * Change some values; null takes one away.
   * @param {Object<string, any>} patch
   * @param {{page?: boolean}} [how]  page: the browser's back button comes back to what was
   */
  set(patch, { page = false } = {}) {
    const changed = new Set();
    for (const [name, value] of Object.entries(patch)) {
      const text = value === null || value === undefined ? undefined : String(value);
      if (this.values.get(name) === text) continue;
      if (text === undefined) this.values.delete(name);
      else this.values.set(name, text);
      changed.add(name);
    }
    if (!changed.size) return;
    // Browsers allow some 200 changes of an address in 30 seconds: what moves is written when it rests.
    clearTimeout(this.timer);
    if (page) this.#write("pushState");
    else this.timer = setTimeout(() => this.#write("replaceState"), 150);
    this.#tell(changed);
  }

  /** Call a function with the names that changed; returns what ends that. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  #write(how) {
    try {
      this.past[how](null, "", written(this.values));
    } catch {
      // A frame in a notebook has no address of its own; the page does without.
    }
  }

  #read() {
    const now = parsed(this.place.hash);
    const changed = new Set([...now.keys(), ...this.values.keys()].filter((n) => now.get(n) !== this.values.get(n)));
    this.values = now;
    if (changed.size) this.#tell(changed);
  }

  #tell(changed) {
    for (const listener of [...this.listeners]) listener(changed);
  }
}
