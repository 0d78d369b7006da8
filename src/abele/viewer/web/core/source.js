// Answers about reports: from the server, or from what a static page took along.

const TYPES = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  uint32: Uint32Array, int32: Int32Array, float32: Float32Array, float64: Float64Array,
};
const MOST_BYTES = 96e6;
const MOST_UNDERWAY = 6;

/** What the server would not answer, in its words. */
export class AskError extends Error {
  constructor(told) {
    super(told.message ?? "no answer");
    Object.assign(this, { at: told.at, because: told.because, remedy: told.remedy });
  }
}

/**
 * An answer's head and arrays.
 * @param {ArrayBuffer} buffer
 * @returns {{head: any, arrays: Object<string, any>}}
 */
export function unpack(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const arrays = {};
  for (const { name, type, shape, first } of head.arrays) {
    const length = shape.reduce((a, b) => a * b, 1);
    arrays[name] = new TYPES[type](buffer, 4 + size + first, length);
    arrays[name].shape = shape;
  }
  return { head, arrays };
}

/** The part of an address that names a question: parameters in order of their names. */
export function address(key, question, params) {
  const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== "");
  given.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const query = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return `${key}/${question}${query ? "?" + query : ""}`;
}

/** Reports and answers about them. Fires "busy" with what is being waited for, and "changed" when a file did. */
export class Source extends EventTarget {
  constructor() {
    super();
    this.reports = [];
    this.kept = new Map();
    this.keptBytes = 0;
    this.waiting = new Map();
    this.underway = 0;
    this.queue = [];
    const frozen = document.getElementById("abele-frozen");
    this.frozen = frozen ? JSON.parse(frozen.textContent) : null;
  }

  get isFrozen() {
    return this.frozen !== null;
  }

  /** The list of reports: read anew where there is a server. */
  async open() {
    if (this.frozen) {
      this.reports = this.frozen.reports;
      this.version = this.frozen.version;
      return this.reports;
    }
    const answer = await fetch("/reports");
    if (!answer.ok) throw new AskError({ message: await answer.text() });
    const told = await answer.json();
    this.reports = told.reports;
    this.version = told.version;
    return this.reports;
  }

  /** Look now and then whether files changed, or the server is gone. */
  watch(milliseconds = 2000) {
    if (this.frozen) return;
    const look = async () => {
      try {
        await this.open();
        const changed = this.reports.filter((r) => r.changed).map((r) => r.key);
        if (changed.length) this.dispatchEvent(new CustomEvent("changed", { detail: changed }));
        this.dispatchEvent(new CustomEvent("reached", { detail: true }));
      } catch {
        this.dispatchEvent(new CustomEvent("reached", { detail: false }));
      }
    };
    setInterval(() => document.visibilityState === "visible" && look(), milliseconds);
  }

  /** Have the server read a file again. */
  async reload(key) {
    const answer = await fetch(`/reload/${key}`, { method: "POST" });
    if (!answer.ok) throw new AskError(await answer.json());
    await this.open();
  }

  /**
   * Ask a question about a report.
   * @param {string} key  of the report
   * @param {string} question
   * @param {Object<string, any>} [params]
   * @returns {Promise<{head: any, arrays: Object<string, any>}>}
   */
  ask(key, question, params = {}) {
    const stamp = this.reports.find((r) => r.key === key)?.stamp ?? "";
    const place = address(key, question, params);
    const name = `${stamp} ${place}`;
    const known = this.kept.get(name);
    if (known) {
      this.kept.delete(name);
      this.kept.set(name, known);
      return known.promise;
    }
    const entry = { promise: null, bytes: 0, answer: null };
    entry.promise = this.#fetched(key, question, params, place, stamp).then(
      (buffer) => {
        entry.bytes = buffer.byteLength;
        this.keptBytes += entry.bytes;
        this.#forget();
        entry.answer = unpack(buffer);
        return entry.answer;
      },
      (error) => {
        this.kept.delete(name);
        throw error;
      },
    );
    this.kept.set(name, entry);
    this.#busy(name, question, entry.promise);
    return entry.promise;
  }

  /** The answer if it is here already. */
  known(key, question, params = {}) {
    const stamp = this.reports.find((r) => r.key === key)?.stamp ?? "";
    return this.kept.get(`${stamp} ${address(key, question, params)}`)?.answer ?? null;
  }

  /** True if a static page has the answer along, or a server could give it. */
  has(key, question, params = {}) {
    return !this.frozen || address(key, question, params) in this.frozen.answers;
  }

  async #fetched(key, question, params, place, stamp) {
    if (this.frozen) {
      const packed = this.frozen.answers[place];
      if (packed === undefined) {
        throw new AskError({
          message: "This file does not hold that detail",
          remedy: "abele view REPORT shows every detail of the report",
        });
      }
      if (typeof packed === "object") throw new AskError(packed);
      const raw = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
      const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
      return new Response(stream).arrayBuffer();
    }
    await this.#turn();
    try {
      const answer = await fetch(`/data/${address(key, question, { ...params, stamp })}`);
      if (!answer.ok) {
        const text = await answer.text();
        throw new AskError(text.startsWith("{") ? JSON.parse(text) : { message: text });
      }
      return await answer.arrayBuffer();
    } finally {
      this.#leave();
    }
  }

  /** Wait for a place among the few requests under way. What was asked last goes first: it is what is looked at now. */
  #turn() {
    if (this.underway < MOST_UNDERWAY) {
      this.underway += 1;
      return Promise.resolve();
    }
    return new Promise((go) => this.queue.push(go));
  }

  #leave() {
    const next = this.queue.pop();
    if (next) next();
    else this.underway -= 1;
  }

  #busy(name, question, promise) {
    this.waiting.set(name, question);
    const tell = () => this.dispatchEvent(new CustomEvent("busy", { detail: [...new Set(this.waiting.values())] }));
    tell();
    const done = () => {
      this.waiting.delete(name);
      tell();
    };
    promise.then(done, done);
  }

  #forget() {
    for (const [name, entry] of this.kept) {
      if (this.keptBytes <= MOST_BYTES) break;
      if (!entry.answer) continue;
      this.kept.delete(name);
      this.keptBytes -= entry.bytes;
    }
  }
}
