// The stacked areas of a range of operations, and what stands around them.

/**
 * The pixel columns of the operations `from` to `to` (excluded): `[{x, end, at}]`.
 * Where several operations share a column, the one with the most bytes stands for it, so that
 * no peak is lost.
 */
function columnsOf(from, to, left, width) {
  const number = to - from;
  const count = Math.min(number, Math.max(1, Math.floor(width)));
  const columns = [];
  for (let column = 0; column < count; column++) {
    const first = from + Math.floor((column * number) / count);
    const end = from + Math.floor(((column + 1) * number) / count);
    let at = first;
    for (let other = first + 1; other < end; other++) if (history.allocated[other] > history.allocated[at]) at = other;
    columns.push({ x: left + (column * width) / count, end: left + ((column + 1) * width) / count, at, first, last: end });
  }
  return columns;
}

/** `M x y H x V y ...` along the tops of columns; a number of a tenth of a pixel. */
function steps(columns, heights, reverse) {
  const parts = [];
  const start = reverse ? columns.length - 1 : 0;
  const stop = reverse ? -1 : columns.length;
  let last = null;
  for (let at = start; at !== stop; at += reverse ? -1 : 1) {
    const y = heights[at].toFixed(1);
    const near = reverse ? columns[at].end : columns[at].x;
    if (y !== last) parts.push(`${last === null && !reverse ? "M" : last === null ? "L" : "H"}${near.toFixed(1)}${last === null ? ` ${y}` : `V${y}`}`);
    last = y;
  }
  parts.push(`H${(reverse ? columns[0].x : columns.at(-1).end).toFixed(1)}`);
  return parts.join("");
}

/** One area for each category, on top of each other; `yOf` turns bytes into pixels. */
function stackedAreas(columns, yOf) {
  const group = svg("g");
  let below = columns.map(() => 0);
  history.held.forEach((values, category) => {
    const above = columns.map(({ at }, column) => below[column] + values[at]);
    if (above.some((nbytes, column) => nbytes > below[column])) {
      const top = steps(columns, above.map(yOf), false);
      group.append(svg("path", { class: `area c${category}`, d: `${top}${steps(columns, below.map(yOf), true)}Z` }));
      group.append(svg("path", { class: "edge", d: top }));
    }
    below = above;
  });
  return group;
}

/** The line of what the allocator has from the driver, the most of each column. */
function reservedLine(columns, yOf) {
  if (!history.reserved) return null;
  const most = columns.map(({ first, last }) => {
    let value = 0;
    for (let at = first; at < last; at++) value = Math.max(value, history.reserved[at]);
    return yOf(value);
  });
  return svg("path", { class: "reserved", d: steps(columns, most, false) });
}

/** Gridlines and sizes, from 0 to `most` bytes. */
function byteAxis(box, most, yOf) {
  const group = svg("g");
  for (const value of byteTicks(most, Math.max(2, Math.floor(box.height / 48)))) {
    const y = yOf(value);
    group.append(svg("line", { class: "gridline", x1: box.left, x2: box.left + box.width, y1: y, y2: y }));
    group.append(svg("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, value ? tickLabel(value) : "0"));
  }
  return group;
}

/** The numbers of operations below the areas. */
function operationAxis(box, from, to) {
  const group = svg("g");
  const bottom = box.top + box.height;
  const narrow = box.width < 480;
  for (const at of countTicks(from, to - 1, Math.max(2, box.width / 110))) {
    const x = box.left + ((at - from + 0.5) / (to - from)) * box.width;
    group.append(svg("line", { class: "gridline", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
    const anchor = x > box.left + box.width - 24 ? "end" : x < box.left + 12 ? "start" : "middle";
    group.append(svg("text", { x, y: bottom + 17, "text-anchor": anchor }, formatInteger(at)));
  }
  if (!narrow) group.append(svg("text", { x: box.left - 6, y: bottom + 17, "text-anchor": "end" }, "operation"));
  return group;
}

/** A name that fits a width: itself, three letters of it, or nothing. */
function fitting(name, width) {
  if (name.length * 6.6 + 6 < width) return name;
  return 4 * 6.6 + 6 < width && name.length > 4 ? `${name.slice(0, 3)}.` : "";
}

/** The steps and their phases: two rows of bands above the areas, lines through them. */
function phaseBands(box, from, to) {
  const group = svg("g");
  const xOf = (at) => box.left + ((Math.max(from, Math.min(to, at)) - from) / (to - from)) * box.width;
  const bottom = box.top + box.height;
  const band = (run, y, text, name, odd) => {
    const [x, end] = [xOf(run.from), xOf(run.to)];
    group.append(svg("rect", { class: odd ? "band odd" : "band", x, y, width: Math.max(0, end - x), height: 18 }));
    const shown = fitting(text, end - x);
    if (shown) group.append(svg("text", { class: name, x: (x + end) / 2, y: y + 13, "text-anchor": "middle" }, shown));
    return x;
  };
  const shown = (run) => run.to > from && run.from < to;
  const turns = stepsOf();
  if (turns.length > 1)
    turns.forEach((run, at) => shown(run) && band(run, box.top - 40, `step ${run.step}`, "strong", at % 2));
  phases.forEach((run, at) => {
    if (!shown(run)) return;
    const x = band(run, box.top - 21, history.text(run.phase) || "", "", at % 2);
    const newStep = at > 0 && phases[at - 1].step !== run.step;
    if (run.from > from) group.append(svg("line", { class: newStep ? "boundary step" : "boundary", x1: x, x2: x, y1: box.top - 21, y2: bottom }));
  });
  return group;
}

/** Consecutive operations of the same step. */
function stepsOf() {
  const found = [];
  for (const run of phases) {
    const last = found.at(-1);
    if (last && last.step === run.step) last.to = run.to;
    else found.push({ ...run });
  }
  return found;
}
