// The tables of the page: layers, holders, segments, steps.

const sized = (nbytes) => (nbytes ? size(nbytes) : "-");

function layersTable(box) {
  const bytes = (title, key, adds) => ({ title, number: true, adds, key, value: (row) => row[key] ?? 0, cell: (row) => sized(row[key]) });
  const columns = [
    { title: "module", name: "name", value: (row) => row.module, cell: (row) => path(row.module) },
    { title: "type", key: "type", value: (row) => row.type, cell: (row) => row.type || "-" },
    { title: "calls", key: "calls", number: true, value: (row) => row.calls, cell: (row) => (row.calls ? formatInteger(row.calls) : "-") },
    bytes("params", "parameter_bytes", true),
    bytes("gradient", "gradient_bytes", true),
    bytes("optimizer", "optimizer_bytes", true),
    bytes("output", "output_bytes"),
    bytes("saved", "saved_bytes", true),
    bytes("fwd peak", "forward_peak_bytes"),
    bytes("bwd peak", "backward_peak_bytes"),
    bytes("live at peak", "live_at_peak_bytes", true),
  ];
  const last = columns.at(-1);
  const filled = columns.filter((column) => !column.key || column === last || report.layers.some((row) => row[column.key]));
  return new SortedTable(box, filled, report.layers, { label: "layers", words: (row) => `${row.module} ${row.type}` });
}

const isIdle = (holder) => holder.idle_bytes > 0;

function holdersTable(box) {
  const only = make("input", { type: "checkbox", id: "only-idle" });
  const label = make("label", { for: "only-idle" }, only, " only idle ones");
  const place = (at, none) => (at === null ? none : formatInteger(at));
  const columns = [
    { title: "bytes", number: true, adds: true, value: (row) => row.bytes, cell: (row) => size(row.bytes) },
    { title: "what", name: "tight", value: (row) => `${row.category} ${tensorText(row)}`, cell: whatHolds },
    { title: "made by", name: "module", value: (row) => row.module, cell: madeBy },
    { title: "born", number: true, value: (row) => row.born, cell: (row) => (row.born < 0 ? "start" : formatInteger(row.born)) },
    { title: "last use", number: true, value: (row) => row.last_use, cell: (row) => (row.last_use < 0 ? "-" : formatInteger(row.last_use)) },
    { title: "freed", number: true, value: (row) => row.freed ?? Infinity, cell: (row) => place(row.freed, "never") },
  ];
  const table = new SortedTable(box, columns, report.holders, {
    label: "tensors",
    extra: [label],
    header: 2,
    filter: (row) => !only.checked || isIdle(row),
    words: (row) => [tensorText(row), words(row.category), row.op, row.module, row.source, isIdle(row) ? "idle" : ""].join(" "),
  });
  only.disabled = !report.holders.some(isIdle);
  only.addEventListener("change", () => table.update());
}

function whatHolds(row) {
  const category = make("small", {}, swatch(history.categories.indexOf(row.category)), words(row.category));
  if (isIdle(row)) category.append(" ", make("span", { class: "badge" }, "idle"));
  return make("div", {}, make("code", {}, tensorText(row)), category);
}

function madeBy(row) {
  const source = row.source ? make("small", {}, path(row.source)) : "";
  return make("div", {}, path(row.op ? `${row.op} of ${row.module}` : row.module), source);
}

const tensorText = (row) => history.holders.get(row);

function segmentsTable(box, segments) {
  const free = (row) => row.pieces.reduce((sum, piece) => sum + (piece.tensor === FREE ? piece.bytes : 0), 0);
  const largest = (row) => row.pieces.reduce((most, piece) => (piece.tensor === FREE ? Math.max(most, piece.bytes) : most), 0);
  const blocks = (row) => row.pieces.filter((piece) => piece.tensor !== FREE).length;
  const columns = [
    { title: "address", value: (row) => row.address, cell: (row) => make("code", {}, `0x${row.address.toString(16)}`) },
    { title: "pool", value: (row) => poolOf(row), cell: (row) => poolOf(row) },
    { title: "stream", number: true, value: (row) => row.stream, cell: (row) => String(row.stream) },
    { title: "bytes", number: true, adds: true, value: (row) => row.bytes, cell: (row) => size(row.bytes) },
    { title: "blocks", number: true, value: blocks, cell: (row) => formatInteger(blocks(row)) },
    { title: "free", number: true, adds: true, value: free, cell: (row) => sized(free(row)) },
    { title: "largest free", number: true, value: largest, cell: (row) => sized(largest(row)) },
  ];
  new SortedTable(box, columns, segments, { label: "segments", sort: [3, true], words: (row) => `0x${row.address.toString(16)} ${poolOf(row)} stream ${row.stream}` });
}

function stepsTable(table) {
  const names = [...new Set(report.steps.flatMap((step) => Object.keys(step.phases)))];
  const head = ["step", "allocated", "reserved", ...names];
  table.append(make("thead", {}, make("tr", {}, ...head.map((text, at) => make("th", { scope: "col", class: at ? "number" : null }, text)))));
  const rows = report.steps.map((step) => {
    const values = [step.allocated_bytes, step.reserved_bytes, ...names.map((name) => step.phases[name] ?? null)];
    return make("tr", {}, make("th", { scope: "row" }, String(step.step)), ...values.map((value) => make("td", { class: "number" }, value === null ? "-" : size(value))));
  });
  table.append(make("tbody", {}, ...rows));
}
