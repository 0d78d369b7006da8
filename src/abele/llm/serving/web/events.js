// Server-sent events out of bytes, and requests to the server. The parser is a pure function of what it was given.

/** Lines of a stream, put together from pieces of any size. */
export class EventLines {
  #rest = "";

  /**
   * @param {string} piece  text as it came
   * @returns {string[]} the data of all events that are whole now
   */
  push(piece) {
    const parts = (this.#rest + piece).split(/\r?\n\r?\n/);
    this.#rest = parts.pop();
    return parts.map(data).filter((text) => text !== "");
  }
}

function data(event) {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  return lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
}

/** What the server said in place of an answer. */
export class Refusal extends Error {
  /** @param {number} status @param {{message?: string, code?: string}} error @param {string|null} retryAfter */
  constructor(status, error, retryAfter) {
    super(error.message ?? `the server answered ${status}`);
    [this.status, this.code, this.retryAfter] = [status, error.code ?? null, retryAfter];
  }
}

function headers(key) {
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

/** An answer of JSON. @param {string} path @param {string} key */
export async function fetched(path, key) {
  const response = await fetch(path, { headers: headers(key) });
  await refuse(response);
  return response.json();
}

async function refuse(response) {
  if (response.ok) return;
  const said = await response.json().catch(() => ({}));
  throw new Refusal(response.status, said.error ?? {}, response.headers.get("Retry-After"));
}

/**
 * The chunks of a streamed answer.
 * @param {string} path @param {object} body @param {string} key @param {AbortSignal} signal
 */
export async function* chunks(path, body, key, signal) {
  const response = await fetch(path, { method: "POST", headers: headers(key), body: JSON.stringify(body), signal });
  await refuse(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const lines = new EventLines();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refusal(0, { message: "the connection ended before the answer did" }, null);
    for (const text of lines.push(value)) {
      if (text === "[DONE]") return;
      const chunk = JSON.parse(text);
      if (chunk.error) throw new Refusal(200, chunk.error, null);
      yield chunk;
    }
  }
}
