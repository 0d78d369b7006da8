// A window on an axis that is zoomed and moved, by wheel, drag, keys and brush. Arithmetic is pure; the rest are events.

/** The window [low, high] within [least, most], of at least `finest`. */
export function within(low, high, least, most, finest) {
  const span = Math.min(Math.max(high - low, finest), most - least);
  const start = Math.min(Math.max(low, least), most - span);
  return [start, start + span];
}

/** The window after zooming by a factor about a place that stays where it is. */
export function zoomed(low, high, factor, about) {
  return [about - (about - low) * factor, about + (high - about) * factor];
}

/** A window on an axis; fires "change". */
export class Range extends EventTarget {
  /**
   * @param {number} least @param {number} most  ends of the axis
   * @param {number} [finest]  the smallest window
   */
  constructor(least, most, finest = 1) {
    super();
    Object.assign(this, { least, most: Math.max(most, least + finest), finest, low: least, high: Math.max(most, least + finest) });
  }

  get span() {
    return this.high - this.low;
  }

  set(low, high) {
    [low, high] = within(low, high, this.least, this.most, this.finest);
    if (low === this.low && high === this.high) return;
    this.low = low;
    this.high = high;
    this.dispatchEvent(new Event("change"));
  }

  /** Other ends of the axis; the window stays as far as it can. */
  bound(least, most) {
    const whole = this.low === this.least && this.high === this.most;
    this.least = least;
    this.most = Math.max(most, least + this.finest);
    if (whole) this.set(this.least, this.most);
    else this.set(this.low, this.high);
  }

  zoom(factor, about = (this.low + this.high) / 2) {
    this.set(...zoomed(this.low, this.high, factor, about));
  }

  /** Move by a part of the window. */
  move(part) {
    this.set(this.low + part * this.span, this.high + part * this.span);
  }

  whole() {
    this.set(this.least, this.most);
  }

  /** The pixel of a value on an axis that is `width` wide. */
  pixel(value, width) {
    return ((value - this.low) / this.span) * width;
  }

  value(pixel, width) {
    return this.low + (pixel / width) * this.span;
  }
}

/**
 * Let arrow keys move a range by a tenth of its window, and what lies across it.
 * @param {HTMLElement} element  that has the focus
 * @param {Range} range
 * @param {(direction: number) => void} across  −1 for up, 1 for down
 */
export function arrows(element, range, across) {
  element.addEventListener("keydown", (event) => {
    const along = { ArrowLeft: -0.1, ArrowRight: 0.1 }[event.key];
    const other = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (along) range.move(along);
    else if (other) across(other);
    else return;
    event.preventDefault();
  });
}

/**
 * Let wheel and pointer steer a range.
 * @param {HTMLElement} element  where they act
 * @param {Range} range
 * @param {() => {left: number, width: number}} plot  where the axis lies in the element
 * @param {{select?: (low: number, high: number, done: boolean) => void, click?: (event: PointerEvent) => void, across?: (pixels: number) => void}} [more]
 *        select: shift and drag; click: a press without a drag; across: a drag or wheel along the other axis
 */
export function steer(element, range, plot, { select, click, across } = {}) {
  let from = null;
  const value = (event) => {
    const { left, width } = plot();
    return range.value(event.clientX - element.getBoundingClientRect().left - left, width);
  };
  element.addEventListener("wheel", (event) => {
    if (event.shiftKey && !event.ctrlKey) {
      range.move((event.deltaY + event.deltaX) / 1000);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      range.move(event.deltaX / 1000);
    } else if (across && !event.ctrlKey && event.altKey) {
      across(event.deltaY);
    } else {
      range.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), value(event));
    }
    event.preventDefault();
  }, { passive: false });
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = { x: event.clientX, y: event.clientY, low: range.low, high: range.high, at: value(event), moved: false, selects: event.shiftKey && !!select };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (!from) return;
    const { width } = plot();
    if (Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y) > 3) from.moved = true;
    if (!from.moved) return;
    if (from.selects) {
      const now = value(event);
      select(Math.min(from.at, now), Math.max(from.at, now), false);
      return;
    }
    const shift = ((event.clientX - from.x) / width) * (from.high - from.low);
    range.set(from.low - shift, from.high - shift);
    if (across) across(from.y - event.clientY);
    from.y = across ? event.clientY : from.y;
  });
  const end = (event) => {
    if (!from) return;
    const was = from;
    from = null;
    if (was.selects && was.moved) {
      const now = value(event);
      select(Math.min(was.at, now), Math.max(was.at, now), true);
    } else if (!was.moved && click && event.type === "pointerup") {
      click(event);
    }
  };
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
  element.addEventListener("dblclick", () => range.whole());
}
