// The page as a whole.

const { peak } = report;

function tiles() {
  const isCuda = report.created_from.target === "cuda";
  const found = [
    ["requested", peak.requested_bytes, "what tensors and libraries ask for"],
    ["allocated", peak.allocated_bytes, isCuda ? "torch.cuda.max_memory_allocated" : "blocks in use"],
  ];
  if (peak.reserved_bytes !== null) found.push(["reserved", peak.reserved_bytes, isCuda ? "torch.cuda.max_memory_reserved" : "held by the allocator"]);
  const list = found.map(([name, nbytes, note]) => tile(name, [size(nbytes)], note));
  if (peak.device_bytes) {
    const { low, high } = peak.device_bytes;
    list.push(tile("nvidia-smi", low === high ? [size(low)] : [size(low), " to ", size(high)], "with the CUDA context"));
  }
  if (report.device) list.push(tile(report.device.name, [size(capacity)], fitText()));
  if (report.idle_bytes) list.push(tile("idle", [size(report.idle_bytes)], "held, and not read again"));
  byId("tiles").append(...list);
}

const tile = (name, value, note) => make("div", {}, make("dt", {}, name), make("dd", {}, ...value, make("small", {}, ...breakable(note))));

function fitText() {
  const fit = report.fits[report.device.name];
  if (!fit) return "its memory";
  const spare = formatBytes(Math.abs(fit.headroom_bytes));
  return fit.fits ? `fits, ${spare} to spare` : `does not fit, ${spare} too much`;
}

function idleSentence() {
  const bound = [" With every tensor freed at its last use the peak would be ", size(report.last_use_peak_bytes), "."];
  const first = report.idle_bytes
    ? [size(report.idle_bytes), ` of the peak (${formatShare(report.idle_bytes, peak.allocated_bytes)}) is idle: held although no later operation reads it.`]
    : ["Nothing of the peak is idle: a later operation reads all of it."];
  byId("idle").append(...first, ...bound);
}

/** What is chosen by hand wins over the system's, and the button names the other one. */
function themes() {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use the ${isDark() ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  system.addEventListener("change", label);
  label();
}

/** On paper everything is open. */
function printing() {
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });
}

/** What the lines of the timeline are. */
function lines() {
  const sample = (name) => svg("svg", { width: 26, height: 8, "aria-hidden": "true" }, svg("line", { class: name, x1: 0, x2: 26, y1: 4, y2: 4 }));
  const item = (name, text) => make("li", {}, sample(name), ` ${text}`);
  const found = [item("pin", "the peak")];
  if (history.reserved) found.push(item("reserved", "reserved by the allocator"));
  const memory = report.device && `memory of ${report.device.name}`;
  if (memory && capacity <= mostOfAxis()) found.push(item("capacity", memory));
  else if (memory) found.push(make("li", {}, `${memory}: `, size(capacity), ", above this picture"));
  byId("lines").append(...found);
}

byId("answer").append(size(peak.allocated_bytes));
tiles();
idleSentence();
lines();
themes();
printing();

const timeline = new Timeline(byId("chart"), byId("overview"), showMoment);
const buttons = {
  "to-peak": () => timeline.choose(history.peak),
  earlier: () => timeline.choose(timeline.chosen - 1),
  later: () => timeline.choose(timeline.chosen + 1),
  in: () => timeline.zoom(0.5),
  out: () => timeline.zoom(2),
  all: () => timeline.view(0, history.count),
};
for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);

fillCategories(categoryRows(byId("breakdown"), "live at the peak"), history.categories.map((name) => report.breakdown[name] ?? 0));
const layers = layersTable(byId("layers-table"));
onWidth(byId("treemap"), (width) =>
  drawTreemap(byId("treemap"), width, (module) => {
    layers.search(report.layers.some((row) => row.module.startsWith(module)) ? module : "");
    byId("layers").scrollIntoView();
    layers.input.focus({ preventScroll: true });
  }),
);
holdersTable(byId("holders-table"));
stepsTable(byId("steps"));
showMemory(byId("memory-text"), byId("memory-maps"), byId("memory-details"));
for (const element of document.querySelectorAll(".unknown")) element.hidden = !report.unknown.length;
