// Tokens of an answer with their times, and the figures that come of them. Pure functions.

/**
 * @typedef {{text: string, ids: number[], seconds: number, cycles: number, host: number}} Piece
 *   text of one chunk, its tokens, modelled time of the step they come from, seconds on the host since the piece before
 */

/** The piece that a chunk of a stream brings, or null. @param {object} chunk @param {number} host @returns {Piece|null} */
export function piece(chunk, host) {
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content ?? choice?.text ?? "";
  const cost = chunk.abele;
  if (!cost && !text) return null;
  return { text, ids: cost?.tokens ?? [], seconds: cost?.seconds ?? 0, cycles: cost?.cycles ?? 0, host };
}

/** Time of each token of a piece: modelled where the machine is, else the host's. */
export function perToken(piece, modelled) {
  return (modelled ? piece.seconds : piece.host) / Math.max(1, piece.ids.length);
}

/** True where the machine's time is known. @param {Piece[]} pieces */
export const isModelled = (pieces) => pieces.some((piece) => piece.seconds > 0);

/**
 * Figures of an answer.
 * @param {Piece[]} pieces
 * @returns {{tokens: number, seconds: number, first: number, host: number, perToken: number, rate: number, hostRate: number}}
 */
export function figures(pieces) {
  const made = pieces.filter((piece) => piece.ids.length);
  const tokens = made.reduce((sum, piece) => sum + piece.ids.length, 0);
  const seconds = made.reduce((sum, piece) => sum + piece.seconds, 0);
  const host = pieces.reduce((sum, piece) => sum + piece.host, 0);
  const first = made[0]?.seconds ?? 0;
  const after = tokens - (made[0]?.ids.length ?? 0);
  const each = after > 0 ? (seconds - first) / after : first;
  return { tokens, seconds, first, host, perToken: each, rate: each ? 1 / each : 0, hostRate: host ? tokens / host : 0 };
}
