// The timeline: what it shows, and how pointer and keys move through it.

const capacity = report.device ? report.device.capacity_bytes : null;

/** The highest value of the axis: with the capacity where it is not far above. */
function mostOfAxis() {
  const held = Math.max(report.peak.allocated_bytes, report.peak.reserved_bytes || 0);
  const near = capacity !== null && capacity < held * 1.6 ? Math.max(capacity, held) : held;
  return Math.max(1, near * 1.1);
}

class Timeline {
  /** `onMoment(at)` is told which operation to show: under the pointer, or the chosen one. */
  constructor(box, overview, onMoment) {
    this.box = box;
    this.overviewBox = overview;
    this.onMoment = onMoment;
    this.most = mostOfAxis();
    this.from = 0;
    this.to = history.count;
    this.chosen = history.peak;
    this.hovered = null;
    onWidth(box, (width) => this.resize(width));
  }

  resize(width) {
    this.width = width;
    const narrow = width < 560;
    const left = narrow ? 58 : 74;
    this.plot = { left, top: 46, width: Math.max(80, width - left - 10), height: narrow ? 250 : Math.min(420, Math.max(300, width / 4)) };
    this.draw();
    this.drawOverview();
  }

  draw() {
    const { plot } = this;
    const yOf = (nbytes) => plot.top + plot.height * (1 - nbytes / this.most);
    this.yOf = yOf;
    this.columns = columnsOf(this.from, this.to, plot.left, plot.width);
    const height = plot.top + plot.height + 24;
    const keep = this.picture;
    this.picture = keep || this.makePicture();
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.overlay.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    fill(this.brush, { y: plot.top, height: plot.height }, []);
    const parts = [
      byteAxis(plot, this.most, yOf),
      phaseBands(plot, this.from, this.to),
      stackedAreas(this.columns, yOf),
      reservedLine(this.columns, yOf),
      this.capacityLine(),
      operationAxis(plot, this.from, this.to),
      this.pin(),
    ];
    this.picture.replaceChildren(...parts.filter(Boolean));
    this.moveCursor();
  }

  makePicture() {
    const picture = svg("svg", {
      tabindex: 0,
      role: "slider",
      "aria-label": "Operation of the timeline",
      "aria-valuemin": 0,
      "aria-valuemax": history.count - 1,
    });
    this.cursor = svg("g");
    this.brush = svg("rect", { class: "brush", visibility: "hidden" });
    // On a layer of its own, so that the areas are not painted again when it moves.
    this.overlay = svg("svg", { class: "overlay", "aria-hidden": "true" }, this.cursor, this.brush);
    this.box.replaceChildren(picture, this.overlay);
    this.listen(picture);
    return picture;
  }

  capacityLine() {
    if (capacity === null || capacity > this.most) return null;
    const { left, width } = this.plot;
    const text = `${report.device.name}: ${formatBytes(capacity)}`;
    const y = this.yOf(capacity);
    return svg(
      "g",
      {},
      svg("line", { class: "capacity", x1: left, x2: left + width, y1: y, y2: y }),
      svg("text", { class: "capacity-text halo", x: left + 6, y: y - 5 }, text),
    );
  }

  /** The middle of an operation. */
  xOf(at) {
    return this.plot.left + ((at - this.from + 0.5) / (this.to - this.from)) * this.plot.width;
  }

  pin() {
    const at = history.peak;
    if (at < this.from || at >= this.to) return null;
    const { plot } = this;
    const x = this.xOf(at);
    const y = this.yOf(history.allocated[at]);
    const toTheLeft = x > plot.left + plot.width / 2;
    const text = svg("text", { class: "strong halo", x: toTheLeft ? x - 9 : x + 9, y: y - 8, "text-anchor": toTheLeft ? "end" : "start" });
    text.append(`peak ${formatBytes(history.allocated[at])}`);
    return svg(
      "g",
      { "pointer-events": "none" },
      svg("line", { class: "pin", x1: x, x2: x, y1: plot.top, y2: plot.top + plot.height }),
      svg("circle", { class: "pin-dot", cx: x, cy: y, r: 5 }),
      text,
    );
  }

  get shown() {
    return this.hovered ?? this.chosen;
  }

  moveCursor() {
    const at = this.shown;
    if (at !== history.peak && at >= this.from && at < this.to) {
      const x = this.xOf(at);
      const { top, height } = this.plot;
      this.cursor.replaceChildren(
        svg("line", { class: "cursor", x1: x, x2: x, y1: top, y2: top + height }),
        svg("circle", { class: "cursor-dot", cx: x, cy: this.yOf(history.allocated[at]), r: 4 }),
      );
    } else this.cursor.replaceChildren();
    this.tell();
  }

  tell() {
    const at = this.shown;
    const who = `${history.text(history.op[at])} of ${history.text(history.module[at])}`;
    const text = `${whenOf(at)}, operation ${formatInteger(at)}, ${who}, ${formatBytes(history.allocated[at])}`;
    fill(this.picture, { "aria-valuenow": at, "aria-valuetext": text }, []);
    this.onMoment(at);
  }

  choose(at) {
    this.chosen = Math.max(0, Math.min(history.count - 1, at));
    this.hovered = null;
    if (this.chosen < this.from || this.chosen >= this.to) this.center(this.chosen);
    else this.moveCursor();
  }

  center(at) {
    const half = Math.floor((this.to - this.from) / 2);
    this.view(at - half, at - half + this.to - this.from);
  }

  /** Shows the operations `from` to `to`, moved so that they are there, at least eight. */
  view(from, to) {
    const number = Math.max(Math.min(8, history.count), Math.min(history.count, Math.round(to - from)));
    this.from = Math.max(0, Math.min(history.count - number, Math.round(from)));
    this.to = this.from + number;
    this.draw();
    this.moveWindow();
  }

  /** Zooms by a factor around an operation, which keeps its place. */
  zoom(factor, at = this.chosen) {
    const number = (this.to - this.from) * factor;
    const inside = at >= this.from && at < this.to;
    const share = inside ? (at - this.from) / (this.to - this.from) : 0.5;
    this.view(at - share * number, at + (1 - share) * number);
  }

  atPoint(event) {
    const box = this.picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width - this.plot.left;
    const column = Math.floor((x / this.plot.width) * this.columns.length);
    return this.columns[Math.max(0, Math.min(this.columns.length - 1, column))].at;
  }

  listen(picture) {
    let start = null;
    let frame = 0;
    picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = event.pointerType === "touch" ? null : { x: event.clientX, at: this.atPoint(event) };
      picture.setPointerCapture(event.pointerId);
    });
    picture.addEventListener("pointermove", (event) => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => this.point(event, start));
    });
    picture.addEventListener("pointerup", (event) => {
      cancelAnimationFrame(frame);
      const isDrag = start && Math.abs(event.clientX - start.x) > 6;
      const at = this.atPoint(event);
      if (isDrag) this.view(Math.min(start.at, at), Math.max(start.at, at) + 1);
      else this.choose(at);
      start = null;
      this.brush.setAttribute("visibility", "hidden");
    });
    picture.addEventListener("pointerleave", (event) => {
      cancelAnimationFrame(frame);
      this.hovered = null;
      showTip(event, null);
      this.moveCursor();
    });
    picture.addEventListener("dblclick", () => this.view(0, history.count));
    picture.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.atPoint(event));
      },
      { passive: false },
    );
    picture.addEventListener("keydown", (event) => this.key(event));
  }

  point(event, start) {
    const at = this.atPoint(event);
    this.hovered = at;
    this.moveCursor();
    if (start) {
      const [a, b] = [this.xOf(start.at), this.xOf(at)];
      fill(this.brush, { x: Math.min(a, b), width: Math.abs(a - b), visibility: "visible" }, []);
    }
    const lines = [formatBytes(history.allocated[at]), history.text(history.op[at]), history.text(history.module[at]), whenOf(at)];
    showTip(event, lines.filter(Boolean));
  }

  key(event) {
    const page = Math.max(1, Math.round((this.to - this.from) / 20));
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageDown: page, PageUp: -page };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.choose(this.chosen + moves[event.key] * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home") this.choose(0);
    else if (event.key === "End") this.choose(history.count - 1);
    else if (event.key === "p" || event.key === "P") this.choose(history.peak);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.view(0, history.count);
    else return;
    event.preventDefault();
  }

  /** The whole run in small, with the part that is shown; dragging moves it. */
  drawOverview() {
    const { left, width } = this.plot;
    const height = 30;
    const columns = columnsOf(0, history.count, left, width);
    const heights = columns.map(({ at }) => height * (1 - history.allocated[at] / this.most));
    const outline = `${steps(columns, heights, false)}V${height}H${left}Z`;
    this.window = svg("rect", { class: "window", y: 0.5, height: height - 1 });
    const picture = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, "aria-hidden": "true" });
    picture.append(svg("rect", { class: "band", x: left, width, height }), svg("path", { class: "silhouette", d: outline }), this.window);
    const move = (event) => {
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * this.width;
      this.center(Math.round(((x - left) / width) * history.count));
    };
    picture.addEventListener("pointerdown", (event) => {
      picture.setPointerCapture(event.pointerId);
      move(event);
    });
    picture.addEventListener("pointermove", (event) => event.buttons && move(event));
    this.overviewBox.replaceChildren(picture);
    this.moveWindow();
  }

  moveWindow() {
    const { left, width } = this.plot;
    const xOf = (at) => left + (at / history.count) * width;
    fill(this.window, { x: xOf(this.from), width: Math.max(2, xOf(this.to) - xOf(this.from)) }, []);
    this.overviewBox.hidden = this.to - this.from === history.count;
  }
}
