// A table that sorts by every column, is searched, and has a row of sums.

const MOST_ROWS = 200;

class SortedTable {
  /**
   * columns: [{title, value(row), cell(row), number, adds, name}]; `value` is what is sorted
   * by, `cell` what is shown, of a column that `adds` the sum stands below.
   * options: {label, words(row), search, sort: [column, descending], extra: [elements], filter(row)}
   */
  constructor(box, columns, rows, options) {
    this.columns = columns;
    this.rows = rows;
    this.options = options;
    [this.by, this.descending] = options.sort || [null, false];
    this.all = false;
    this.box = box;
    this.build();
    this.update();
  }

  build() {
    const { label, extra = [] } = this.options;
    const id = `${this.box.id}-search`;
    this.input = make("input", { type: "search", id, placeholder: "Search", "aria-label": `Search ${label}`, autocomplete: "off", spellcheck: "false" });
    this.input.addEventListener("input", () => this.update());
    this.count = make("span", { class: "count", role: "status" });
    this.heads = this.columns.map((column, at) => this.head(column, at));
    this.body = make("tbody");
    this.foot = make("tfoot");
    const table = make("table", {}, make("caption", { class: "visually-hidden" }, label), make("thead", {}, make("tr", {}, ...this.heads)), this.body, this.foot);
    this.more = make("button", { type: "button", hidden: "" }, "Show all rows");
    this.more.addEventListener("click", () => {
      this.all = true;
      this.update();
    });
    this.box.replaceChildren(
      make("div", { class: "filter" }, this.input, ...extra, this.count),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table),
      this.more,
    );
  }

  head(column, at) {
    const button = make("button", { type: "button", class: "sort" }, column.title);
    button.addEventListener("click", () => {
      const first = Boolean(column.number);
      this.descending = this.by === at ? !this.descending : first;
      this.by = at;
      this.update();
    });
    return make("th", { scope: "col", class: column.number ? "number" : null }, button);
  }

  /** Searches for a text, as if it had been typed. */
  search(text) {
    this.input.value = text;
    this.update();
  }

  get found() {
    const wanted = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { filter } = this.options;
    const rows = this.rows.filter((row) => {
      if (filter && !filter(row)) return false;
      const text = this.options.words(row).toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    if (this.by === null) return rows;
    const { value } = this.columns[this.by];
    const sign = this.descending ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    return rows.sort((a, b) => sign * compare(value(a), value(b)));
  }

  update() {
    const found = this.found;
    this.heads.forEach((head, at) => {
      if (at === this.by) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const shown = this.all ? found : found.slice(0, MOST_ROWS);
    this.body.replaceChildren(...shown.map((row) => make("tr", {}, ...this.columns.map((column, at) => this.cell(column, row, at)))));
    this.more.hidden = shown.length === found.length;
    this.more.textContent = `Show all ${formatInteger(found.length)} rows`;
    const of = found.length === this.rows.length ? "" : ` of ${formatInteger(this.rows.length)}`;
    this.count.textContent = `${formatInteger(found.length)}${of} ${this.rows.length === 1 ? "row" : "rows"}`;
    this.sums(found);
  }

  cell(column, row, at) {
    const tag = at === (this.options.header ?? 0) ? make("th", { scope: "row" }) : make("td");
    fill(tag, { class: column.number ? "number" : column.name || null }, [column.cell(row)]);
    return tag;
  }

  sums(found) {
    if (!this.columns.some((column) => column.adds)) return;
    const cells = this.columns.map((column, at) => {
      if (column.adds) return make("td", { class: "number" }, size(found.reduce((sum, row) => sum + column.value(row), 0)));
      return at === (this.options.header ?? 0) ? make("th", { scope: "row" }, "total") : make("td");
    });
    this.foot.replaceChildren(make("tr", {}, ...cells));
  }
}
