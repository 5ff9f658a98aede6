// The peak as one picture: a rectangle for each category, in it one for each module.

const SLACK = history.categories.indexOf("allocator_slack");
const WORKSPACES = history.categories.indexOf("workspaces");

/** The first components of a module's path, as many as leave room for each. */
const prefixOf = (module) => module.split(".").slice(0, history.depth).join(".");

/** `[{category, nbytes, parts: [{name, nbytes}]}]` of the peak, the largest first. */
function groupsAtPeak() {
  const { tensors, text, peak } = history;
  const maps = history.categories.map(() => new Map());
  for (const t of history.bySize) {
    if (!isLive(t, peak)) continue;
    const module = prefixOf(text(tensors.module[t]));
    const map = maps[tensors.category[t]];
    map.set(module, (map.get(module) || 0) + tensors.requested[t]);
  }
  return history.categories
    .map((name, category) => {
      const nbytes = history.held[category][peak];
      const parts = [...maps[category]].map(([module, value]) => ({ name: module, nbytes: value }));
      const rest = nbytes - parts.reduce((sum, part) => sum + part.nbytes, 0);
      if (rest > 0) parts.push({ name: category === WORKSPACES ? `scratch of ${text(history.op[peak])}` : "rounding and unsplit blocks", nbytes: rest });
      return { category, nbytes, parts: parts.filter((part) => part.nbytes > 0).sort((a, b) => b.nbytes - a.nbytes) };
    })
    .filter((group) => group.nbytes > 0)
    .sort((a, b) => b.nbytes - a.nbytes);
}

/**
 * Rectangles of areas proportional to the items' bytes, as square as it goes.
 * Source: Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000).
 */
function squarify(items, box) {
  const placed = [];
  let { x, y, width, height } = box;
  let left = items.reduce((sum, item) => sum + item.nbytes, 0);
  for (let at = 0; at < items.length; ) {
    const scale = (width * height) / left;
    const side = Math.min(width, height);
    let [end, sum, worst] = [at, 0, Infinity];
    while (end < items.length) {
      const next = sum + items[end].nbytes;
      const depth = (next * scale) / side;
      const ratio = Math.max(...[items[at].nbytes, items[end].nbytes].map((n) => aspect((n * scale) / depth, depth)));
      if (ratio > worst) break;
      [end, sum, worst] = [end + 1, next, ratio];
    }
    const depth = left > 0 ? (sum * scale) / side : 0;
    let along = width <= height ? x : y;
    for (; at < end; at++) {
      const length = (items[at].nbytes * scale) / depth;
      placed.push({ item: items[at], ...(width <= height ? { x: along, y, width: length, height: depth } : { x, y: along, width: depth, height: length }) });
      along += length;
    }
    if (width <= height) [y, height] = [y + depth, Math.max(0, height - depth)];
    else [x, width] = [x + depth, Math.max(0, width - depth)];
    left -= sum;
  }
  return placed;
}

const aspect = (a, b) => Math.max(a / b, b / a);

function drawTreemap(box, width, choose) {
  const height = width < 560 ? 360 : Math.min(460, Math.max(340, width * 0.45));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}` });
  const total = history.allocated[history.peak];
  const cells = [];
  for (const { item: group, ...place } of squarify(groupsAtPeak(), { x: 0, y: 0, width, height })) {
    const title = titleOf(group, place);
    const head = title ? 20 : 0;
    const own = svg("g", { class: `c${group.category}` }, svg("rect", { class: "cell", ...place }));
    picture.append(own);
    for (const { item: part, ...cell } of squarify(group.parts, { ...place, y: place.y + head, height: place.height - head })) {
      const lines = [formatBytes(part.nbytes), part.name, words(history.categories[group.category]), `${formatShare(part.nbytes, total)} of the peak`];
      cells.push({ ...cell, lines, choose: () => choose(part.name) });
      own.append(svg("rect", { class: "cell", "data-cell": cells.length - 1, ...cell }));
      const label = cellText(part.name, cell);
      if (label) own.append(label);
    }
    if (title) own.append(title);
  }
  box.replaceChildren(picture);
  walkable(picture, cells, "What modules hold at the peak", null);
}

function titleOf(group, { x, y, width, height }) {
  if (height < 44 || width < 70) return null;
  const name = words(history.categories[group.category]);
  const full = `${name}, ${formatBytes(group.nbytes)}`;
  const text = full.length * 7 + 12 < width ? full : name;
  if (text.length * 7 + 12 > width) return null;
  return svg("text", { class: "strong on-cell", x: x + 6, y: y + 15 }, text);
}

function cellText(name, { x, y, width, height }) {
  const room = Math.floor((width - 8) / 6.8);
  if (height < 17 || room < 4) return null;
  const shown = shortenPath(name, room);
  return shown ? svg("text", { class: "on-cell", x: x + 5, y: y + 14 }, shown) : null;
}
