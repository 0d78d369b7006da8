// What a view is given: the report that is shown, questions, state, keys.

/** @typedef {{key: string, title: string, stamp: string, cycles: number}} ReportName */

export class Context {
  /**
   * @param {import("./source.js").Source} source
   * @param {import("./state.js").State} state
   * @param {import("./keys.js").Keys} keys
   */
  constructor(source, state, keys) {
    Object.assign(this, { source, state, keys, facts: null });
  }

  /** Keys of the reports that are shown: the first is the one that single views are of. */
  get reports() {
    const named = this.state.get("reports").split(",").filter((key) => this.source.reports.some((r) => r.key === key));
    return named.length ? named : this.source.reports.map((r) => r.key);
  }

  get report() {
    return this.reports[0];
  }

  /** The program that is shown: the first one where the report has no such program as the state names. */
  get program() {
    const named = this.state.number("program", 0);
    return Number.isInteger(named) && named > 0 && named < (this.facts?.programs.length ?? Infinity) ? named : 0;
  }

  /** Ask about the report that is shown. */
  ask(question, params = {}) {
    return this.source.ask(this.report, question, params);
  }

  /** The answer if it is here already, else null. */
  known(question, params = {}) {
    return this.source.known(this.report, question, params);
  }

  title(key) {
    return this.source.reports.find((r) => r.key === key)?.title ?? key;
  }

  /** Cycles as a time on the modelled machine. */
  seconds(cycles) {
    return cycles / (this.facts?.clock_hz || 1);
  }

  /** The same for one view, which steers by the keyboard only while `isShown()`. */
  ofView(isShown) {
    const steer = (range) => {
      if (isShown()) this.keys.steer(range);
    };
    return Object.create(this, { keys: { value: { steer } } });
  }

  /** Go to a view with a selection. */
  go(view, patch = {}) {
    this.state.set({ view, ...patch }, { page: true });
  }
}
