"use strict";
/* Lists that draw only the rows that are seen, so that their length costs nothing. */

const data = JSON.parse(document.getElementById("report").textContent);
const ROW = 20;
const MARGIN = 12;
const NATURAL = new Intl.Collator("en", { numeric: true });

/** `make("div", "name", text)`: an element; texts are never read as HTML. */
function make(tag, name = "", text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== "") element.textContent = text;
  return element;
}

function appendParts(element, parts) {
  for (const [text, role] of parts) {
    const name = data.roles[role];
    element.append(make("span", name ? `role-${name}` : "", data.strings[text]));
  }
}

const NAME = /^(?:(?:[×x]\d+|[├╰●]) +)?(?:[\w–,*[\]$-]+(?:\.[\w–,*[\]$-]+)+|(?=.*[_\d])[\w–*]+)$/;
const WITH_NODE = /\S (\(\w+\))$/;
const SHORT_NAME = 14, TAIL = 12;
/** A letter of a table in pixels; gaps and edges in letters, as in the style sheet; the part of a row that one column gets. */
const LETTER = 7.23, GAP = 1.7, EDGES = 5, LARGEST_PART = 0.45, LEAST_GROWING = 14;

/** A cell: a name that does not fit loses its middle, since its end tells it from the others; else the end is cut. */
function appendCell(element, part) {
  const text = data.strings[part[0]];
  appendParts(element, [part]);
  const node = text.match(WITH_NODE);
  if (text.length <= SHORT_NAME || !(node || NAME.test(text))) return;
  const span = element.lastChild, last = text.slice(-TAIL), word = last.search(/[._]/);
  const tail = node ? node[1] : word >= 0 ? last.slice(word) : last;
  span.replaceChildren(make("span", "name-start", text.slice(0, -tail.length)), make("span", "", tail));
  span.classList.add("name");
}

class List {
  /** `draw(index, element)` fills a row. */
  constructor(element, draw) {
    this.element = element;
    this.draw = draw;
    this.count = 0;
    this.space = make("div", "space");
    element.append(this.space);
    element.addEventListener("scroll", () => this.later());
    new ResizeObserver(() => this.later()).observe(element);
  }

  show(count) {
    this.count = count;
    this.space.style.height = `${count * ROW}px`;
    this.redraw();
  }

  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.redraw();
    });
  }

  redraw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - MARGIN);
    const last = Math.min(this.count, Math.ceil((scrollTop + clientHeight) / ROW) + MARGIN);
    const rows = [];
    for (let index = first; index < last; index++) {
      const row = make("div", "row");
      row.style.top = `${index * ROW}px`;
      row.dataset.index = index;
      this.draw(index, row);
      rows.push(row);
    }
    this.space.replaceChildren(...rows);
  }

  reveal(index) {
    const top = index * ROW, { scrollTop, clientHeight } = this.element;
    if (top < scrollTop + ROW || top > scrollTop + clientHeight - 3 * ROW) {
      this.element.scrollTop = Math.max(0, top - clientHeight / 3);
    }
    this.redraw();
  }

  static at(event) {
    const row = event.target.closest(".row");
    return row ? Number(row.dataset.index) : -1;
  }
}

/** Rows by source line: `[file:line, [row, …]]` of what a row stands for (0) or is related to (1). */
function lineIndex(rows, side) {
  const found = new Map();
  rows.forEach((row, at) => {
    for (const span of row[2] ? row[2][side] : []) {
      const [file, line, , endLine] = data.spans[span];
      for (let number = line; number <= endLine; number++) {
        const key = `${file}:${number}`, list = found.get(key);
        if (!list) found.set(key, [at]);
        else if (list[list.length - 1] !== at) list.push(at);
      }
    }
  });
  return found;
}

class Table {
  /** `chosen(row, table)` gets the row that the user picks, `hovered(row)` of the one below the pointer. */
  constructor(block, chosen, hovered) {
    this.block = block;
    this.rows = block.rows;
    this.columns = block.columns;
    this.groups = block.groups || [];
    this.sort = null;
    this.unfolded = false;
    this.element = make("div", "table");
    this.selected = -1;
    this.words = [];
    this.linked = new Set();
    this.showAll();
    this.head = make("div", "head");
    const body = make("div", "list");
    body.tabIndex = 0;
    body.setAttribute("role", "listbox");
    this.element.append(this.head, body);
    if (!this.rows.length) this.element.replaceChildren(make("div", "empty", block.empty));
    this.list = new List(body, (index, row) => this.drawRow(this.order[index], row));
    this.layOut();
    new ResizeObserver(() => this.fit()).observe(this.element);
    body.addEventListener("click", (event) => {
      const index = List.at(event);
      if (index >= 0) this.select(this.order[index], chosen, true);
    });
    body.addEventListener("mouseover", (event) => {
      const index = List.at(event);
      hovered(index >= 0 ? this.rows[this.order[index]] : null);
    });
    body.addEventListener("mouseleave", () => hovered(null));
    body.addEventListener("keydown", (event) => this.move(event, chosen));
    this.list.show(this.order.length);
  }

  /** Every row, identical layers as one unless they are unfolded. */
  showAll() {
    const groups = this.unfolded ? [] : this.groups;
    this.groupOf = new Map(groups.filter(([, positions]) => positions.length > 1).map((group) => [group[1][0], group]));
    this.order = this.sorted(groups.length ? groups.map(([, positions]) => positions[0]) : this.rows.map((_, at) => at));
  }

  /** By value, never by text: sizes by bytes, names as a reader counts; empty cells come last. */
  sorted(order) {
    if (!this.sort) return order;
    const { column, descending } = this.sort, sign = descending ? -1 : 1;
    const key = (at) => {
      const [text, , value] = (this.groupOf.get(at)?.[0] ?? this.rows[at][1])[column], shown = data.strings[text];
      return value ?? (shown === "" || shown === "unknown size" ? null : shown);
    };
    const keyed = order.map((at) => [key(at), at]);
    const compare = ([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * (typeof a === "number" && typeof b === "number" ? a - b : NATURAL.compare(a, b)));
    return keyed.sort(compare).map(([, at]) => at);
  }

  /** A click on a title: sorted, then reversed, then the table's own order. */
  sortBy(column) {
    const first = Boolean(this.columns[column][4]), { sort } = this;
    if (sort?.column !== column) this.sort = { column, descending: first };
    else this.sort = sort.descending === first ? { column, descending: !first } : null;
    this.drawHead();
    this.filter(this.words);
  }

  unfold(unfolded) {
    this.unfolded = unfolded;
    this.showAll();
    this.list.show(this.order.length);
    if (this.selected >= 0) this.select(this.selected);
  }

  /** The rows that a shown row stands for. */
  members(at) {
    return this.groupOf.get(at)?.[1] ?? [at];
  }

  /** The position in the list of what shows a row: the row itself, or the fold that holds it. */
  indexOf(at) {
    const index = this.order.indexOf(at);
    return index >= 0 || at < 0 ? index : this.order.findIndex((shown) => this.members(shown).includes(at));
  }

  text(at) {
    if (!this.texts) this.texts = [];
    this.texts[at] ??= `${data.strings[this.rows[at][0]]} ${this.rows[at][1].map(([text]) => data.strings[text]).join(" ")}`.toLowerCase();
    return this.texts[at];
  }

  layOut() {
    const step = Math.max(1, Math.floor(this.rows.length / 200));
    const sizes = this.columns.map(([title]) => title.length);
    const measure = (cells) => cells.forEach(([text], column) => (sizes[column] = Math.max(sizes[column], data.strings[text].length)));
    for (let at = 0; at < this.rows.length; at += step) measure(this.rows[at][1]);
    for (let at = 0; at < this.groups.length; at += step) measure(this.groups[at][0]);
    this.natural = this.columns.map(([, , grows, widest], at) => (grows ? sizes[at] : Math.min(sizes[at], widest)));
    this.fit();
  }

  /** As in the terminal app: what distinguishes the rows keeps its room, and the columns of highest `drop` go first. */
  fit() {
    const room = this.element.clientWidth / LETTER - EDGES, most = room * LARGEST_PART;
    const least = this.columns.map(([, , grows, , , drop, narrowest], at) => Math.min(this.natural[at], drop ? narrowest : grows ? LEAST_GROWING : most));
    const drops = (at) => this.columns[at][5], total = (shown) => shown.reduce((sum, at) => sum + least[at] + GAP, 0);
    let shown = this.columns.map((_, at) => at);
    while (room > 0 && total(shown) > room && shown.some(drops)) {
      const last = shown.reduce((first, at) => (drops(at) > drops(first) ? at : first));
      shown = shown.filter((at) => at !== last);
    }
    this.visible = new Set(shown);
    const width = (at) => `minmax(${least[at]}ch, ${this.columns[at][2] ? "1fr" : `${this.natural[at]}ch`})`;
    this.template = shown.map(width).join(" ");
    this.head.style.gridTemplateColumns = this.template;
    this.drawHead();
    this.list.redraw();
  }

  drawHead() {
    this.head.replaceChildren(
      ...this.columns.map(([title, align], column) => {
        const arrow = this.sort?.column === column ? (this.sort.descending ? " ▼" : " ▲") : "";
        const cell = make("span", `cell ${align === "right" ? "right" : ""}`, `${title}${arrow}`);
        if (title) cell.addEventListener("click", () => this.sortBy(column));
        cell.hidden = !this.visible.has(column);
        return cell;
      }),
    );
  }

  drawRow(at, row) {
    row.style.gridTemplateColumns = this.template;
    row.setAttribute("role", "option");
    const members = this.members(at), group = this.groupOf.get(at);
    if (members.includes(this.selected)) row.classList.add("selected");
    if (members.some((member) => this.linked.has(member))) row.classList.add("linked");
    (group ? group[0] : this.rows[at][1]).forEach((part, column) => {
      const cell = make("span", `cell ${this.columns[column][1] === "right" ? "right" : ""}`);
      cell.hidden = !this.visible.has(column);
      appendCell(cell, part);
      row.append(cell);
    });
  }

  /** `isStep` is true for each pick that a reader may want to go back to. */
  select(at, chosen, isStep = false) {
    this.selected = at;
    this.linked = new Set();
    const index = this.indexOf(at);
    if (index >= 0) this.list.reveal(index);
    if (chosen) chosen(this.rows[at], this, isStep);
  }

  move(event, chosen) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
    if (!step || !this.order.length) return;
    event.preventDefault();
    event.stopPropagation();
    const from = this.indexOf(this.selected);
    this.select(this.order[Math.max(0, Math.min(this.order.length - 1, from + step))], chosen);
  }

  /** Keeps the rows that hold every word; how many there are. */
  filter(words) {
    this.words = words;
    if (words.length) {
      this.groupOf = new Map();
      this.order = this.sorted(this.rows.map((_, at) => at).filter((at) => words.every((word) => this.text(at).includes(word))));
    } else this.showAll();
    this.list.show(this.order.length);
    return words.length ? this.order.length : this.rows.length;
  }

  /** Marks the rows that stand for a source line, else those related to it; how many there are. */
  link(file, line) {
    this.inner ??= lineIndex(this.rows, 0);
    const key = `${file}:${line}`;
    let found = this.inner.get(key);
    if (!found) found = (this.outer ??= lineIndex(this.rows, 1)).get(key);
    this.linked = new Set(found || []);
    this.selected = -1;
    const first = this.order.findIndex((at) => this.members(at).some((member) => this.linked.has(member)));
    if (first >= 0) this.list.reveal(first);
    else this.list.redraw();
    return this.linked.size;
  }

  /** The row of a key, with or without the name of its list; else the row that shows this text as a cell. */
  find(key, list = this.name) {
    const at = this.rows.findIndex((row) => [key, `${list}:${key}`].includes(data.strings[row[0]]));
    return at >= 0 ? at : this.rows.findIndex((row) => row[1].some(([text]) => data.strings[text] === key));
  }

  /** The key of a row without the name of its list, as addresses have it. */
  key(at, list = this.name) {
    const key = data.strings[this.rows[at][0]];
    return key.startsWith(`${list}:`) ? key.slice(list.length + 1) : key;
  }

  /** Rows that read this one; found for all rows at once, when first asked. */
  users(at) {
    if (!this.readers) {
      this.readers = this.rows.map(() => []);
      this.rows.forEach((row, reader) => new Set(row[5] || []).forEach((read) => this.readers[read].push(reader)));
    }
    return this.readers[at];
  }
}
