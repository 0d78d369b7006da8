// Answers about reports: from the server, or from what a static page took along.

const TYPES = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  uint32: Uint32Array, int32: Int32Array, float32: Float32Array, float64: Float64Array,
};
const MOST_BYTES = 96e6;
const MOST_UNDERWAY = 6;
const MOST_BUNDLES = 24;

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
  for (const { name, type, shape, first, held, back, planes } of head.arrays) {
    const length = shape.reduce((a, b) => a * b, 1);
    arrays[name] = held ? restored(new Uint8Array(buffer, 4 + size + first), { type, length, held, back, planes }) : new TYPES[type](buffer, 4 + size + first, length);
    arrays[name].shape = shape;
  }
  return { head, arrays };
}

/** A dense array, as abele.viewer.wire holds it: planes of bytes of a narrow type, items less those `back` before them. */
function restored(bytes, { type, length, held, back, planes }) {
  const narrow = new TYPES[held](length);
  const raw = new Uint8Array(narrow.buffer);
  const size = narrow.BYTES_PER_ELEMENT;
  if (planes) for (let k = 0; k < size; k += 1) for (let i = 0; i < length; i += 1) raw[i * size + k] = bytes[k * length + i];
  else raw.set(bytes.subarray(0, length * size));
  // Sums wrap as differences did.
  if (back) for (let i = back; i < length; i += 1) narrow[i] += narrow[i - back];
  return held === type ? narrow : TYPES[type].from(narrow);
}

/** Text in base64 of compressed bytes, as those bytes were. */
function inflated(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

/** The part of an address that names a question: parameters in order of their names. */
export function address(key, question, params) {
  const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== "");
  given.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const query = new URLSearchParams(given.map(([k, v]) => [k, String(v)])).toString();
  return `${key}/${question}${query ? "?" + query : ""}`;
}

/**
 * Reports and answers about them. Fires "busy" with what is being waited for, and "changed" when a file did. `asked` and
 * `bytes` count the questions that were not known, and what came.
 */
export class Source extends EventTarget {
  constructor() {
    super();
    this.reports = [];
    this.kept = new Map();
    this.keptBytes = 0;
    this.waiting = new Map();
    this.asked = 0;
    this.bytes = 0;
    this.underway = 0;
    this.queue = [];
    const inside = document.getElementById("abele-frozen");
    this.inside = inside ? JSON.parse(inside.textContent) : null;
    this.frozen = null;
    this.bundles = new Map();
  }

  /** True in a page that is one file. */
  get isFrozen() {
    return this.inside !== null;
  }

  /** The list of reports: read anew where there is a server. */
  async open() {
    if (this.inside) {
      this.frozen = JSON.parse(new TextDecoder().decode(await inflated(this.inside[0])));
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
    if (this.inside) return;
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
        const answer = unpack(buffer);
        if (answer.head.refused) throw new AskError(answer.head.refused);
        entry.bytes = buffer.byteLength;
        this.bytes += entry.bytes;
        this.keptBytes += entry.bytes;
        this.#forget();
        entry.answer = answer;
        return answer;
      },
    ).catch((error) => {
      this.kept.delete(name);
      throw error;
    });
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
      const where = this.frozen.answers[place];
      if (where === undefined) {
        throw new AskError({
          message: "This file does not hold that detail",
          remedy: "abele view REPORT shows every detail of the report",
        });
      }
      const [bundle, first, size] = where;
      return (await this.#bundle(bundle)).slice(first, first + size);
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

  /** A bundle of answers of a page that is one file; the last few are kept. */
  #bundle(number) {
    const bytes = this.bundles.get(number) ?? inflated(this.inside[1 + number]);
    this.bundles.delete(number);
    this.bundles.set(number, bytes);
    if (this.bundles.size > MOST_BUNDLES) this.bundles.delete(this.bundles.keys().next().value);
    return bytes;
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
    this.asked += 1;
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
