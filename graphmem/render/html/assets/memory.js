// The segments at the peak, to scale, with their blocks and the free pieces between them.

const FREE = -2;
const SCRATCH = -1;
const MAP_ROWS = 14;
const ROW = 16;

const poolOf = (segment) => `${segment.small ? "small" : "large"}${segment.expandable ? ", expandable" : ""}`;

/** Segments in rows of `room` bytes, each in the first row that has room for it. */
function shelves(segments, room) {
  const rows = [];
  for (const segment of segments) {
    let row = rows.find((other) => other.used + segment.bytes <= room);
    if (!row) rows.push((row = { used: 0, segments: [] }));
    row.segments.push({ segment, start: row.used });
    row.used += segment.bytes;
  }
  return rows;
}

function describePiece(segment, piece) {
  const where = `${poolOf(segment)} segment of ${formatBytes(segment.bytes)}`;
  if (piece.tensor === FREE) return [`${formatBytes(piece.bytes)} free`, `in a ${where}`];
  if (piece.tensor === SCRATCH) return [formatBytes(piece.bytes), "scratch of the operation's kernel", where];
  const { tensors, text } = history;
  const category = words(history.categories[tensors.category[piece.tensor]]);
  return [formatBytes(piece.bytes), `${category}, ${text(tensors.tensor[piece.tensor])}`, whoMade(piece.tensor), text(tensors.source[piece.tensor]) || "", where].filter(Boolean);
}

/** Segments in rows, the largest first; `said` shows the piece that the keys are on. */
function drawMap(box, segments, width, said, label) {
  const total = segments.reduce((sum, segment) => sum + segment.bytes, 0);
  const largest = segments.reduce((most, segment) => Math.max(most, segment.bytes), 0);
  const room = Math.max(largest, total / MAP_ROWS);
  const rows = shelves([...segments].sort((a, b) => b.bytes - a.bytes), room);
  const height = rows.length * (ROW + 6);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}` }, hatch());
  const scale = width / room;
  const cells = [];
  const frames = [];
  rows.forEach((row, number) => {
    const y = number * (ROW + 6) + 2;
    for (const { segment, start } of row.segments) {
      let x = start * scale;
      for (const piece of segment.pieces) {
        const cell = { x, y, width: piece.bytes * scale, height: ROW };
        cells.push({ ...cell, lines: describePiece(segment, piece) });
        picture.append(svg("rect", { class: pieceClass(piece), "data-cell": cells.length - 1, ...cell, "stroke-width": cell.width < 3 ? 0 : 0.5 }));
        x += cell.width;
      }
      frames.push(svg("rect", { class: "frame", x: start * scale, y, width: segment.bytes * scale, height: ROW, "pointer-events": "none", "stroke-width": segment.bytes * scale < 4 ? 0.25 : 1 }));
    }
  });
  picture.append(...frames);
  box.replaceChildren(picture);
  walkable(picture, cells, label, said);
}

function pieceClass(piece) {
  if (piece.tensor === FREE) return "cell free";
  return `cell c${piece.tensor === SCRATCH ? WORKSPACES : history.tensors.category[piece.tensor]}`;
}

/** The pattern of free pieces. */
function hatch() {
  const pattern = svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(svg("rect", { width: 5, height: 5, style: "fill:var(--free)" }), svg("rect", { width: 1.4, height: 5, style: "fill:var(--hatch)" }));
  return svg("defs", {}, pattern);
}

/** The section: sentence, maps of the large and the small pool, legend. */
function showMemory(text, maps, details) {
  const segments = history.memory;
  if (!segments) {
    text.textContent = "There are none: they are those of PyTorch's CUDA allocator, and this report is of another device or runtime.";
    details.hidden = true;
    return;
  }
  const pieces = segments.flatMap((segment) => segment.pieces);
  const free = pieces.filter((piece) => piece.tensor === FREE);
  const sum = (list) => list.reduce((total, item) => total + item.bytes, 0);
  const most = free.reduce((largest, piece) => Math.max(largest, piece.bytes), 0);
  text.append(
    ...[size(sum(segments)), ` in ${formatInteger(segments.length)} segments at this moment: `, size(sum(segments) - sum(free)), " in blocks and ", size(sum(free))],
    ...[` free in ${formatInteger(free.length)} pieces, the largest of `, size(most), ". The most that is reserved in the run is ", size(report.peak.reserved_bytes), "."],
  );
  for (const [small, name] of [[0, "Large pool"], [1, "Small pool"]]) {
    const own = segments.filter((segment) => Boolean(segment.small) === Boolean(small));
    if (!own.length) continue;
    const room = Math.max(...own.map((segment) => segment.bytes), sum(own) / MAP_ROWS);
    const title = make("h3", { class: "map-title" }, `${name}: `, size(sum(own)), ` in ${formatInteger(own.length)} ${own.length === 1 ? "segment" : "segments"}, a row is ${formatBytes(Math.round(room))}`);
    const box = make("div", { class: "chart" });
    const said = make("p", { class: "said" });
    maps.append(title, box, said);
    onWidth(box, (width) => drawMap(box, own, width, said, `Blocks of the ${name.toLowerCase()}`));
  }
  const shown = history.categories.flatMap((words_, category) => (used[category] && category !== SLACK ? [make("li", {}, swatch(category), words(words_))] : []));
  maps.append(make("ul", { class: "map-legend", "aria-label": "Colours" }, ...shown, make("li", {}, make("span", { class: "swatch free", "aria-hidden": "true" }), "free")));
  segmentsTable(byId("segments-table"), segments);
}
