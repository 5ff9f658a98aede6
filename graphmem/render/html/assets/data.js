// The report and its history, read from the page. All sizes are bytes.

const report = JSON.parse(byId("report-json").textContent);
const history = readHistory(JSON.parse(byId("history-json").textContent));

/** `[7, 3, 2, 1]` as 7, 7, 7, 2. */
function expand(runs, count, Kind) {
  const values = new Kind(count);
  for (let at = 0, run = 0; run < runs.length; run += 2) {
    values.fill(runs[run], at, at + runs[run + 1]);
    at += runs[run + 1];
  }
  return values;
}

/** The values whose differences are given. */
function accumulate(runs, count) {
  const values = expand(runs, count, Float64Array);
  for (let at = 1; at < count; at++) values[at] += values[at - 1];
  return values;
}

function readHistory(raw) {
  const { count } = raw.moments;
  const held = raw.held.map((runs) => accumulate(runs, count));
  const allocated = new Float64Array(count);
  for (const values of held) for (let at = 0; at < count; at++) allocated[at] += values[at];
  const label = (runs) => expand(runs, count, Int32Array);
  const { moments, tensors } = raw;
  return {
    count,
    depth: raw.depth,
    holders: new Map(report.holders.map((holder, at) => [holder, raw.holders[at]])),
    peak: raw.peak,
    categories: raw.categories,
    text: (at) => (at < 0 ? null : raw.strings[at]),
    held,
    allocated,
    step: label(moments.step),
    phase: label(moments.phase),
    op: label(moments.op),
    module: label(moments.module),
    source: label(moments.source),
    scratch: expand(moments.scratch, count, Float64Array),
    reserved: moments.reserved && accumulate(moments.reserved, count),
    tensors,
    bySize: Uint32Array.from(tensors.bytes.keys()).sort((a, b) => tensors.bytes[b] - tensors.bytes[a]),
    memory: raw.memory && readMemory(raw.memory),
  };
}

function readMemory(raw) {
  let next = 0;
  return raw.address.map((address, at) => {
    let place = address;
    const pieces = [];
    for (; pieces.length < raw.count[at]; next++) {
      pieces.push({ address: place, bytes: raw.piece[next], tensor: raw.tensor[next] });
      place += raw.piece[next];
    }
    return { address, bytes: raw.bytes[at], stream: raw.stream[at], small: raw.small[at], expandable: raw.expandable[at], pieces };
  });
}

/** Whether tensor `t` stands in memory while operation `at` runs. */
function isLive(t, at) {
  const { born, freed } = history.tensors;
  return born[t] <= at && (freed[t] < 0 || freed[t] >= at);
}

/** Consecutive operations of the same step and phase: `{from, to, step, phase}`, `to` excluded. */
function phasesOf() {
  const found = [];
  for (let at = 0; at < history.count; at++) {
    const last = found.at(-1);
    if (last && last.step === history.step[at] && last.phase === history.phase[at]) last.to = at + 1;
    else found.push({ from: at, to: at + 1, step: history.step[at], phase: history.phase[at] });
  }
  return found;
}
const phases = phasesOf();

/** `step 2, backward`, as far as there is more than one. */
function whenOf(at) {
  const step = report.steps.length > 1 ? [`step ${history.step[at]}`] : [];
  return [...step, history.text(history.phase[at]) || ""].filter(Boolean).join(", ");
}

/** Who made a tensor: its operator and module, or the parameter's name. */
function whoMade(t) {
  const { tensors, text } = history;
  const name = text(tensors.name[t]);
  if (name) return name;
  const op = text(tensors.op[t]);
  const module = text(tensors.module[t]);
  return op ? `${op} of ${module}` : module;
}
