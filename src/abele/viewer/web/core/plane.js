// A picture that is moved and magnified in two directions, by wheel, drag and keys. Arithmetic is pure; the rest are events.

/** The place [x, y, scale] after zooming by a factor about a pixel that stays where it is. */
export function zoomedAbout([x, y, scale], factor, px, py, least = 0.02, most = 6) {
  const next = Math.min(Math.max(scale * factor, least), most);
  const by = next / scale;
  return [px - (px - x) * by, py - (py - y) * by, next];
}

/** The place at which a picture of this size fits into a box, its scale at most `most`. */
export function fitting(width, height, boxWidth, boxHeight, most = 1, edge = 16) {
  const scale = Math.min(most, (boxWidth - 2 * edge) / Math.max(width, 1), (boxHeight - 2 * edge) / Math.max(height, 1));
  return [(boxWidth - width * scale) / 2, (boxHeight - height * scale) / 2, scale];
}

/** Where a picture lies in its box: pixel = picture × scale + (x, y). Fires "change". */
export class Plane extends EventTarget {
  /** @param {() => {width: number, height: number, boxWidth: number, boxHeight: number}} sizes */
  constructor(sizes) {
    super();
    Object.assign(this, { sizes, x: 0, y: 0, scale: 1 });
  }

  set(x, y, scale = this.scale) {
    Object.assign(this, { x, y, scale });
    this.dispatchEvent(new Event("change"));
  }

  /** As the keys say it: a factor below one shows less. */
  zoom(factor, px, py) {
    const { boxWidth, boxHeight } = this.sizes();
    this.set(...zoomedAbout([this.x, this.y, this.scale], 1 / factor, px ?? boxWidth / 2, py ?? boxHeight / 2));
  }

  /** Move sideways by a part of the box. */
  move(part) {
    this.set(this.x - part * this.sizes().boxWidth * 0.5, this.y);
  }

  whole(most = 1) {
    const { width, height, boxWidth, boxHeight } = this.sizes();
    this.set(...fitting(width, height, boxWidth, boxHeight, most));
  }

  /** Bring a place of the picture to the middle. */
  centre(x, y, scale = this.scale) {
    const { boxWidth, boxHeight } = this.sizes();
    this.set(boxWidth / 2 - x * scale, boxHeight / 2 - y * scale, scale);
  }

  /** The place as text for links: three numbers. */
  text() {
    return [this.x, this.y, this.scale * 1000].map(Math.round).join(",");
  }

  read(text) {
    const [x, y, scale] = text.split(",").map(Number);
    if (![x, y, scale].every(Number.isFinite) || !(scale > 0)) return false;
    this.set(x, y, Math.min(Math.max(scale / 1000, 0.02), 6));
    return true;
  }

  /** The place of the picture under an event. */
  at(element, event) {
    const box = element.getBoundingClientRect();
    return [(event.clientX - box.left - this.x) / this.scale, (event.clientY - box.top - this.y) / this.scale];
  }
}

/** Let wheel and pointer move a plane; a press without a drag is a click. The wheel scrolls where `scrolls`, with ctrl it zooms. */
export function grab(element, plane, { click = () => {}, scrolls = false } = {}) {
  let from = null;
  element.addEventListener("wheel", (event) => {
    const box = element.getBoundingClientRect();
    if (scrolls && !event.ctrlKey) plane.set(plane.x - event.deltaX, plane.y - event.deltaY);
    else plane.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.002), event.clientX - box.left, event.clientY - box.top);
    event.preventDefault();
  }, { passive: false });
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = { x: event.clientX, y: event.clientY, px: plane.x, py: plane.y, moved: false };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (!from) return;
    if (Math.abs(event.clientX - from.x) + Math.abs(event.clientY - from.y) > 3) from.moved = true;
    if (from.moved) plane.set(from.px + event.clientX - from.x, from.py + event.clientY - from.y);
  });
  const end = (event) => {
    const was = from;
    from = null;
    if (was && !was.moved && event.type === "pointerup") click(event);
  };
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
}
