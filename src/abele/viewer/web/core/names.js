// Names that stand below each other, cut so that they can still be told apart. Pure functions.

const LEAST = 7;

/** Parts of a name, each with what stands before it: "encoder", ".layer.3", ".query". A number belongs to the part before it. */
export function parts(name) {
  return name.match(/[./ ]?[^./ ]+(?:[./]\d+(?![^./ ]))*|[./ ]+/g) ?? [];
}

/** How many of some names have each part; how many names there are stands under "". */
export function shared(names) {
  const all = new Set(names);
  const found = new Map([["", all.size]]);
  for (const name of all) for (const part of new Set(parts(name))) found.set(part, (found.get(part) ?? 0) + 1);
  return found;
}

/**
 * A name that fits. Parts that half of the names share, and classes in parentheses, make way for "…" first; then long parts
 * are cut in their middle; then parts go, the commonest first. What differs stays longest.
 * @param {string} name
 * @param {Map<string, number>} common  as `shared` counts the parts of all names
 * @param {(text: string) => number} width  of a text
 * @param {number} room
 */
export function shortened(name, common, width, room) {
  if (width(name) <= room) return name;
  const all = parts(name);
  const kept = all.map(() => true);
  const middle = (all.length - 1) / 2;
  const times = (i) => common.get(all[i]) ?? 0;
  const isClass = (i) => all[i].startsWith(" (") && times(i) > 1;
  const order = all.map((_, i) => i).sort((a, b) => isClass(b) - isClass(a) || times(b) - times(a) || Math.abs(a - middle) - Math.abs(b - middle) || a - b);
  const isDue = (i) => isClass(i) || 2 * times(i) >= (common.get("") ?? 0);
  let text = name;
  const without = (i) => {
    kept[i] = false;
    text = joined(all, kept, Infinity);
    return width(text) <= room;
  };
  const due = order.filter(isDue).slice(0, all.length - 1);
  for (const i of due) if (without(i)) return text;
  const longest = Math.max(...all.filter((_, i) => kept[i]).map((part) => part.length));
  const most = last(LEAST, longest, (size) => width(joined(all, kept, size)) <= room);
  if (most >= LEAST) return joined(all, kept, most);
  for (const i of order.filter((i) => kept[i]).slice(0, -1)) if (without(i)) return text;
  const whole = [...text];
  const size = last(1, whole.length, (n) => width(cut(whole, n)) <= room);
  return size ? cut(whole, size) : "…";
}

/** Parts of a name that are kept, each of at most so many letters, and "…" for those between. */
function joined(all, kept, most) {
  return all.map((part, i) => {
    if (!kept[i]) return kept[i - 1] === false ? "" : "…";
    const letters = [...(kept[i - 1] === false && part.startsWith(".") ? part.slice(1) : part)];
    return letters.length > most ? cut(letters, most) : letters.join("");
  }).join("");
}

/** So many letters of a text, "…" among them, from its beginning and its end. */
function cut(letters, size) {
  const tail = Math.floor((size - 1) / 2);
  return `${letters.slice(0, size - 1 - tail).join("")}…${tail ? letters.slice(-tail).join("") : ""}`;
}

/** The largest number from `low` to `high` that fits, or 0; where one fits, all smaller ones do. */
function last(low, high, fits) {
  if (low > high || !fits(low)) return 0;
  let [good, bad] = [low, high + 1];
  while (bad - good > 1) {
    const n = (good + bad) >> 1;
    if (fits(n)) good = n;
    else bad = n;
  }
  return good;
}
