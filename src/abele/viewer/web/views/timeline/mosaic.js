// Map tiles of an axis: which ones a window needs, and what is shown of them while finer ones load.

/**
 * The map tiles that a window is drawn with: level n cuts the axis in 2^n.
 * @param {number} low @param {number} high  the window
 * @param {number} least @param {number} most  ends of the axis
 * @param {number} width  pixels of the window
 * @param {number} [columns]  columns of a tile
 * @param {number} [deepest]  the last level
 * @returns {{level: number, first: number, last: number}}
 */
export function wanted(low, high, least, most, width, columns = 512, deepest = 40) {
  const whole = most - least;
  const share = Math.max((high - low) / whole, 2 ** -deepest);
  const level = Math.min(Math.max(Math.round(Math.log2(width / columns / share)), 0), deepest);
  const count = 2 ** level;
  const place = (value) => Math.min(Math.max(Math.floor(((value - least) / whole) * count), 0), count - 1);
  return { level, first: place(low), last: Math.max(place(low), place(high - (high - low) * 1e-9)) };
}

/** Ends of a map tile. */
export function tileWindow(level, index, least, most) {
  const size = (most - least) / 2 ** level;
  return [least + index * size, least + (index + 1) * size];
}

const MOST_ASKED = 4;

/** Answers of a question in map tiles. */
export class Mosaic {
  /**
   * @param {object} how
   * @param {import("abele/core/context.js").Context} how.context
   * @param {string} how.question
   * @param {() => Object<string, any>} how.params  what else is asked with
   * @param {number} how.least @param {number} how.most  ends of the axis
   * @param {() => void} how.loaded  another answer came
   * @param {number} [how.deepest]
   */
  constructor({ context, question, params = () => ({}), least = 0, most, loaded, deepest = 40 }) {
    Object.assign(this, { context, question, params, least, most, loaded, deepest });
    this.failed = new Set();
    this.asked = 0;
    this.error = null;
  }

  /** The answer of a map tile if it is here; else it is asked for. */
  tile(level, index, more = {}) {
    const params = { ...this.params(), ...more, level, index };
    const known = this.context.known(this.question, params);
    if (known) return known;
    const name = JSON.stringify(params);
    if (this.failed.has(name) || this.asked >= MOST_ASKED) return null;
    this.asked += 1;
    this.context.ask(this.question, params).then(
      () => {
        this.asked -= 1;
        this.loaded();
      },
      (error) => {
        this.asked -= 1;
        this.failed.add(name);
        this.error = error;
        this.loaded();
      },
    );
    return null;
  }

  /**
   * What a window is drawn with: for each wanted map tile its own answer, or that of the next coarser one that is here.
   * @returns {Array<{low: number, high: number, own: [number, number], answer: any}>}  own: the window of the answer, of which the part
   *          from low to high is drawn
   */
  cover(low, high, width, more = {}) {
    const { level, first, last } = wanted(low, high, this.least, this.most, width, 512, this.deepest);
    const found = [];
    for (let index = first; index <= last; index += 1) {
      const [a, b] = tileWindow(level, index, this.least, this.most);
      let answer = this.tile(level, index, more);
      let [l, i] = [level, index];
      while (!answer && l > 0) {
        l -= 1;
        i = Math.floor(i / 2);
        answer = this.context.known(this.question, { ...this.params(), ...more, level: l, index: i });
      }
      if (!answer && l === 0) this.tile(0, 0, more);
      if (answer) found.push({ low: a, high: b, own: tileWindow(l, i, this.least, this.most), answer });
    }
    return found;
  }
}
