// Elements from names and text. Text is text: nothing here takes markup, so that a name in a report stays a name.

/**
 * An element.
 * @param {string} tag  its name, with classes after dots: "div.row.wide"
 * @param {Object<string, any>} [attributes]  attributes; functions under on… are listeners
 * @param {...(Node|string|number|null|undefined|Array)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2).toLowerCase(), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  fill(element, ...children);
  return element;
}

/** Put other children into an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map(node));
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Call a function at most once a frame, with what it was last called with. */
export function everyFrame(action) {
  let waiting = null;
  return (...given) => {
    const first = waiting === null;
    waiting = given;
    if (first) {
      requestAnimationFrame(() => {
        const now = waiting;
        waiting = null;
        action(...now);
      });
    }
  };
}

/** Call a function when it has not been asked for some milliseconds. */
export function settled(action, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), milliseconds);
  };
}
