// SVG: elements, ticks, a tip beside the pointer, and keys that walk from cell to cell.

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** Round numbers of bytes from 0 to `most`, at most `count` of them. */
function byteTicks(most, count) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(most, 1)) / 10));
  for (let power = 0.01; ; power *= 10)
    for (const factor of [1, 2, 5]) {
      const step = Math.max(1, factor * power * unit);
      if (most / step <= count) return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
    }
}

/** A tick's label, without decimals that say nothing: `2.5 GiB`. */
const tickLabel = (nbytes) => formatBytes(Math.round(nbytes)).replace(/\.?0+(?= [KMGTP])/, "");

/** Round operation numbers from `from` to `to`. */
function countTicks(from, to, count) {
  for (let power = 1; ; power *= 10)
    for (const factor of [1, 2, 5]) {
      const step = factor * power;
      if ((to - from) / step > count) continue;
      const first = Math.ceil(from / step) * step;
      return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, at) => first + at * step);
    }
}

const tip = byId("tip");

/** Shows lines beside the pointer, the first in bold; without lines, nothing. */
function showTip(event, lines) {
  tip.hidden = !lines;
  if (!lines) return;
  tip.replaceChildren(make("b", {}, lines[0]), ...lines.slice(1).map((line) => make("div", {}, line)));
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
  const top = event.clientY + 16 + box.height > innerHeight ? event.clientY - 12 - box.height : event.clientY + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

/** Draws again whenever the width of a box changes, at once for the first time. */
function onWidth(box, draw) {
  let width = 0;
  const look = () => {
    const now = Math.floor(box.clientWidth);
    if (now > 0 && now !== width) draw((width = now));
  };
  new ResizeObserver(look).observe(box);
  look();
}

/**
 * A picture of cells that pointer and keys walk over.
 * cells: [{x, y, width, height, lines, choose}]; `choose` is called by click and Enter.
 */
function walkable(picture, cells, label, said) {
  const mark = svg("rect", { class: "chosen", visibility: "hidden" });
  picture.append(mark);
  fill(picture, { tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": 1, "aria-valuemax": cells.length }, []);
  let at = 0;
  const show = (next, byKey) => {
    at = Math.max(0, Math.min(cells.length - 1, next));
    const { x, y, width, height, lines } = cells[at];
    fill(mark, { x, y, width, height, visibility: "visible" }, []);
    fill(picture, { "aria-valuenow": at + 1, "aria-valuetext": lines.join(", ") }, []);
    if (said) said.textContent = byKey ? lines.join(" · ") : "";
  };
  const hide = () => {
    mark.setAttribute("visibility", "hidden");
    if (said) said.textContent = "";
  };
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
  fill(picture, { "aria-valuenow": 1, "aria-valuetext": cells.length ? cells[0].lines.join(", ") : "nothing" }, []);
  if (!cells.length) return;
  picture.addEventListener("focus", () => picture.matches(":focus-visible") && show(at, true));
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", (event) => {
    if (event.key in steps) show(at + steps[event.key], true);
    else if (event.key === "Enter" && cells[at].choose) cells[at].choose();
    else return;
    event.preventDefault();
  });
  const cellOf = (event) => {
    const number = event.target.getAttribute("data-cell");
    return number === null ? null : Number(number);
  };
  picture.addEventListener("pointermove", (event) => {
    const found = cellOf(event);
    showTip(event, found === null ? null : cells[found].lines);
    if (found === null) hide();
    else show(found, false);
  });
  picture.addEventListener("pointerleave", (event) => {
    showTip(event, null);
    hide();
  });
  picture.addEventListener("click", (event) => {
    const found = cellOf(event);
    if (found !== null && cells[found].choose) cells[found].choose();
  });
}
