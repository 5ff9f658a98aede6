// What stands below the timeline: one operation, its categories and its live tensors.

const MOST_LIVE = 25;
const used = history.held.map((values) => values.some((nbytes) => nbytes > 0));
const swatch = (category) => make("span", { class: `swatch c${category}`, "aria-hidden": "true" });

/** A table's row for each category of the run, to be filled by `fillCategories`. */
function categoryRows(table, title) {
  const head = make("tr", {}, make("th", { scope: "col" }, title), make("th", { scope: "col", class: "number" }, "bytes"));
  head.append(make("th", { scope: "col", class: "number" }, "share"), make("td", { class: "bar-cell", "aria-hidden": "true" }));
  const rows = history.categories.map((name, category) => {
    if (!used[category]) return null;
    const [nbytes, share, bar] = [make("td", { class: "number" }), make("td", { class: "number" }), make("td", { class: "bar-cell", "aria-hidden": "true" })];
    const row = make("tr", {}, make("th", { scope: "row" }, swatch(category), words(name)), nbytes, share, bar);
    return { row, nbytes, share, bar, category, value: null };
  });
  const [nbytes, share] = [make("td", { class: "number" }), make("td", { class: "number" })];
  const total = make("tr", {}, make("th", { scope: "row" }, "total"), nbytes, share, make("td", { class: "bar-cell", "aria-hidden": "true" }));
  const shown = rows.filter(Boolean).reverse();
  table.append(make("thead", {}, head), make("tbody", {}, ...shown.map((r) => r.row)), make("tfoot", {}, total));
  return { shown, total: { nbytes, share } };
}

/** Bytes of each category, their shares and bars; only what changed is written. */
function fillCategories({ shown, total }, held) {
  const sum = held.reduce((a, b) => a + b, 0);
  const most = Math.max(...held, 1);
  for (const line of shown) {
    const value = held[line.category];
    if (line.value !== value) line.nbytes.replaceChildren(size(value));
    line.value = value;
    line.row.classList.toggle("nothing", value === 0);
    line.share.textContent = formatShare(value, sum);
    line.bar.replaceChildren(make("span", { class: `meter c${line.category}`, style: `width:${(value / most) * 100}%` }));
  }
  total.nbytes.replaceChildren(size(sum));
  total.share.textContent = formatShare(sum, sum);
}

const legend = categoryRows(byId("legend"), "live");
const liveBody = make("tbody");
const liveFoot = make("tfoot");
byId("live").append(
  make("thead", {}, make("tr", {}, ...["bytes", "what", "made by", "lives", "last use"].map((t, at) => make("th", { scope: "col", class: t === "what" || t === "made by" ? null : "number" }, t)))),
  liveBody,
  liveFoot,
);

/** Shows an operation: where it is, what is live while it runs, and who holds it. */
function showMoment(at) {
  const { text } = history;
  const when = whenOf(at);
  const title = `Operation ${formatInteger(at)}${when ? `, ${when}` : ""} `;
  byId("now-title").replaceChildren(title, at === history.peak ? make("span", { class: "badge" }, "peak") : "");
  const facts = [
    ["operator", path(text(history.op[at]) || "-")],
    ["module", path(text(history.module[at]) || "-")],
    ["source", history.source[at] < 0 ? "-" : path(text(history.source[at]))],
    ["allocated", size(history.allocated[at])],
  ];
  if (history.reserved) facts.push(["reserved", size(history.reserved[at])]);
  facts.push(["its scratch", history.scratch[at] ? size(history.scratch[at]) : "none"]);
  byId("where").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  fillCategories(legend, history.held.map((values) => values[at]));
  showLive(at);
}

function showLive(at) {
  const { tensors, text } = history;
  const rows = [];
  let [count, listed] = [0, 0];
  for (const t of history.bySize) {
    if (!isLive(t, at)) continue;
    if (++count > MOST_LIVE) continue;
    listed += tensors.bytes[t];
    rows.push(rowOf(t));
  }
  byId("live-title").textContent = `${formatInteger(count)} live ${count === 1 ? "tensor" : "tensors"}, largest first`;
  if (rows.length !== liveBody.children.length || rows.some((row, place) => liveBody.children[place] !== row)) liveBody.replaceChildren(...rows);
  const rest = count - rows.length;
  const more = history.allocated[at] - listed - history.scratch[at];
  const lines = [];
  if (rest > 0) lines.push(totalRow(more, `in ${formatInteger(rest)} smaller tensors`));
  if (history.scratch[at]) lines.push(totalRow(history.scratch[at], "scratch of the operation's kernel"));
  lines.push(totalRow(history.allocated[at], "allocated"));
  liveFoot.replaceChildren(...lines);
}

const totalRow = (nbytes, label) => make("tr", {}, make("td", { class: "number" }, size(nbytes)), make("td", { colspan: 4 }, label));

const MOST_KEPT = 2000;
const keptRows = new Map();

/** A tensor's row, made once: the largest tensors stay from operation to operation. */
function rowOf(t) {
  if (!keptRows.has(t)) {
    if (keptRows.size >= MOST_KEPT) keptRows.clear();
    keptRows.set(t, liveRow(t));
  }
  return keptRows.get(t);
}

function liveRow(t) {
  const { tensors, text } = history;
  const category = tensors.category[t];
  const source = text(tensors.source[t]);
  return make(
    "tr",
    {},
    make("td", { class: "number" }, size(tensors.bytes[t])),
    make("td", { class: "tight" }, make("code", {}, text(tensors.tensor[t])), make("small", {}, swatch(category), words(history.categories[category]))),
    make("td", { class: "module" }, path(whoMade(t)), source ? make("small", {}, path(source)) : null),
    make("td", { class: "number" }, `${tensors.born[t] < 0 ? "start" : formatInteger(tensors.born[t])} – ${tensors.freed[t] < 0 ? "end" : formatInteger(tensors.freed[t])}`),
    make("td", { class: "number" }, tensors.used[t] < 0 ? "-" : formatInteger(tensors.used[t])),
  );
}
