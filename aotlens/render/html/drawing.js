/* A stage's graph as a drawing: boxes that open, zoom, pan, search; the table has the same nodes. */

const MOST_DRAWN = 400;
const CHARACTER = 6.7, LINE_HEIGHT = 15, MOST_CHARACTERS = 34;
const READABLE = 0.75, SMALLEST = 0.02;
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

/** The middle is cut, since names differ at both ends. */
function cutMiddle(text) {
  if (text.length <= MOST_CHARACTERS) return text;
  const half = (MOST_CHARACTERS - 1) / 2;
  return `${text.slice(0, Math.ceil(half))}…${text.slice(-Math.floor(half))}`;
}

/** The items in an order in which each comes after what it reads, else that of the program; cycles are cut. */
function afterOperands(items, edges) {
  const reads = items.map(() => []), state = items.map(() => 0), ordered = [];
  for (const [from, to] of edges) reads[to].push(from);
  for (let start = 0; start < items.length; start++) {
    const stack = [start];
    while (stack.length) {
      const item = stack[stack.length - 1];
      if (state[item] === 0) {
        state[item] = 1;
        stack.push(...reads[item].filter((read) => state[read] === 0).sort((a, b) => b - a));
      } else {
        stack.pop();
        if (state[item] === 1) ordered.push(items[item]);
        state[item] = 2;
      }
    }
  }
  return ordered;
}

class Drawing {
  /** `chosen(row)` is called with the node that the user picks. */
  constructor(block, table, chosen) {
    Object.assign(this, { block, table, chosen, open: new Set(), selected: -1, words: [], hit: -1 });
    this.element = make("div", "drawing");
    this.bar = make("span", "tools");
    this.note = make("span", "note");
    this.svg = shape("svg", { tabindex: 0, role: "img", "aria-label": "graph" });
    this.element.append(this.svg);
    this.move();
    new ResizeObserver(() => (this.drawn ? this.isMoved || this.fit(READABLE) : this.draw(true))).observe(this.svg);
  }

  /** What is drawn: a box for each closed one, else nodes; in the order of the program. */
  visible() {
    const items = [];
    const add = (boxes, positions) => {
      for (const box of boxes) {
        const [label, , members, inner] = box;
        if (!this.open.has(box)) items.push({ box, label, at: this.firstOperator(members), members });
        else {
          const inside = new Set(inner.flatMap((one) => one[2]));
          add(inner, members.filter((at) => !inside.has(at)));
        }
      }
      for (const at of positions) items.push({ at, members: [at] });
    };
    const boxed = new Set(this.block.boxes.flatMap((box) => box[2]));
    add(this.block.boxes, this.table.rows.map((_, at) => at).filter((at) => !boxed.has(at)));
    return items.sort((a, b) => a.at - b.at);
  }

  /** What a box comes after in the program: its inputs come before everything. */
  firstOperator(members) {
    return members.find((at) => this.block.fates[at] !== "input") ?? members[0];
  }

  draw(fit = false) {
    if (!this.svg.clientWidth) return;
    this.drawn = true;
    const listed = this.visible(), all = afterOperands(listed, this.edgesOf(listed)), whole = this.edgesOf(all);
    this.items = this.nearest(all, whole);
    this.edges = this.items.length === all.length ? whole : this.edgesOf(this.items);
    for (const item of this.items) this.measure(item);
    const { places, paths, width, height } = layOut(this.items, this.edges);
    this.size = [width, height];
    this.group?.remove();
    this.group = shape("g", {}, this.svg);
    this.lines = paths.map((d, number) => shape("path", { class: this.edges[number][0] < this.edges[number][1] ? "edge" : "edge back", d }, this.group));
    this.items.forEach((item, number) => this.drawItem(item, places[number]));
    this.showBar(all.length);
    if (fit || !this.view) this.fit(READABLE);
    else this.place();
    this.mark();
  }

  edgesOf(items) {
    const home = new Map(), edges = new Set(), { output } = this.block;
    items.forEach((item, number) => item.members.forEach((at) => home.set(at, number)));
    this.table.rows.forEach((row, at) => {
      for (const read of row[5] || []) {
        if (at === output && this.block.fates[read] === "saved") continue;
        const from = home.get(read), to = home.get(at);
        if (from !== undefined && to !== undefined && from !== to) edges.add(from * items.length + to);
      }
    });
    return [...edges].map((edge) => [Math.floor(edge / items.length), edge % items.length]);
  }

  /** At most `MOST_DRAWN` items: those with the fewest edges between them and the selected one, else the first. */
  nearest(items, edges) {
    if (items.length <= MOST_DRAWN) return items;
    const near = items.map(() => []);
    for (const [from, to] of edges) {
      near[from].push(to);
      near[to].push(from);
    }
    const start = Math.max(0, items.findIndex((item) => item.members.includes(this.selected)));
    const reached = new Set([start]);
    for (const item of reached) {
      for (const other of near[item]) if (reached.size < MOST_DRAWN) reached.add(other);
    }
    for (let at = start; at < items.length && reached.size < MOST_DRAWN; at++) reached.add(at);
    return items.filter((_, number) => reached.has(number));
  }

  measure(item) {
    const cells = item.box ? null : this.table.rows[item.at][1];
    const columns = this.block.shown;
    item.lines = item.box ? [item.label, item.box[1]] : columns.map((column) => data.strings[cells[column][0]]).filter(Boolean);
    item.lines = item.lines.map(cutMiddle);
    item.width = Math.max(...item.lines.map((line) => line.length)) * CHARACTER + 16;
    item.height = item.lines.length * LINE_HEIGHT + 8;
  }

  drawItem(item, { x, y }) {
    const fate = item.box ? "box" : this.block.fates[item.at] || "";
    const group = shape("g", { class: `item ${fate}`, transform: `translate(${x} ${y})` }, this.group);
    Object.assign(item, { x, y, group });
    shape("rect", { x: -item.width / 2, y: -item.height / 2, width: item.width, height: item.height, rx: 4 }, group);
    item.lines.forEach((line, number) => {
      const text = shape("text", { class: number ? "facts" : "name", "text-anchor": "middle", y: -item.height / 2 + 16 + number * LINE_HEIGHT }, group);
      text.textContent = line;
    });
    const title = shape("title", {}, group);
    title.textContent = item.box ? `${item.label}: ${item.box[1]}; click to open` : [...item.lines, fate].filter(Boolean).join("\n");
    group.addEventListener("click", () => !this.dragged && this.pick(item));
  }

  pick(item) {
    if (item.box) this.toggle(item.box);
    else this.chosen(item.at);
  }

  toggle(box) {
    const opens = !this.open.delete(box);
    if (opens) this.open.add(box);
    this.draw(true);
    const inside = this.items.find((item) => (opens ? box[2].includes(item.at) && this.block.fates[item.at] !== "input" : item.box === box));
    if (inside) this.center(inside);
  }

  showBar(count) {
    this.bar.replaceChildren();
    const add = (text, title, act) => {
      const button = make("button", "", text);
      button.title = title;
      button.addEventListener("click", act);
      this.bar.append(button);
    };
    add("+", "Zoom in", () => this.zoom(1.3));
    add("−", "Zoom out", () => this.zoom(1 / 1.3));
    add("fit", "Show the whole drawing", () => this.fit());
    for (const box of this.open) add(`${box[0]} ×`, "Close this box", () => this.toggle(box));
    const part = this.items.length < count ? `${this.items.length} of ${count} drawn: the nearest to the selected node, by edges` : "";
    const fates = Object.values(this.block.fates);
    const key = [
      fates.includes("saved") && "amber: saved for the backward, without the edge to the output",
      fates.includes("recomputed") && "violet: recomputed",
      this.block.boxes.length && "click a box to open it",
    ];
    this.note.textContent = part || key.filter(Boolean).join(" · ");
    this.bar.append(this.note);
  }

  /** Shows a node: opens the boxes around it, and moves it into view. */
  reveal(at) {
    this.selected = at;
    const open = (boxes) => {
      for (const box of boxes) {
        if (!box[2].includes(at)) continue;
        this.open.add(box);
        open(box[3]);
      }
    };
    const before = this.open.size;
    open(this.block.boxes);
    if (!this.svg.clientWidth) return void (this.drawn = false);
    const item = () => this.items?.find((one) => !one.box && one.at === at);
    if (this.open.size !== before || !item()) this.draw();
    this.mark();
    if (item()) this.center(item());
  }

  /** Marks the selected node with its edges, and what the search matches. */
  mark() {
    const number = this.items.findIndex((item) => item.members.includes(this.selected));
    this.lines.forEach((line, at) => line.classList.toggle("on", this.edges[at].includes(number)));
    const matches = (item) => this.words.length > 0 && (this.has(item.label || "") || item.members.some((at) => this.has(this.table.text(at))));
    this.hits = this.items.filter(matches);
    this.items.forEach((item, at) => {
      item.group.classList.toggle("selected", at === number);
      item.group.classList.toggle("found", this.hits.includes(item));
      item.group.classList.toggle("faded", this.words.length > 0 && !this.hits.includes(item));
    });
  }

  has(text) {
    return this.words.every((word) => text.toLowerCase().includes(word));
  }

  search(words) {
    this.words = words;
    this.hit = -1;
    if (this.drawn) this.mark();
  }

  nextHit() {
    if (!this.hits?.length) return false;
    this.hit = (this.hit + 1) % this.hits.length;
    this.center(this.hits[this.hit]);
    return true;
  }

  // The view: how far the drawing is moved, and its scale.

  /** As large as the room allows, but no smaller than `least`: a tall drawing then starts at its top. */
  fit(least = SMALLEST) {
    const { clientWidth, clientHeight } = this.svg, [width, height] = this.size;
    const scale = Math.min(1.2, Math.max(least, Math.min((clientWidth - 20) / width, (clientHeight - 20) / height)));
    this.view = [(clientWidth - width * scale) / 2, height * scale > clientHeight ? 10 : (clientHeight - height * scale) / 2, scale];
    this.place();
  }

  center(item) {
    this.isMoved = true;
    const { clientWidth, clientHeight } = this.svg, scale = Math.max(READABLE, this.view[2]);
    this.view = [clientWidth / 2 - item.x * scale, clientHeight / 2 - item.y * scale, scale];
    this.place();
  }

  zoom(by, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    this.isMoved = true;
    const [left, top, old] = this.view, scale = Math.min(4, Math.max(SMALLEST, old * by));
    this.view = [x - ((x - left) * scale) / old, y - ((y - top) * scale) / old, scale];
    this.place();
  }

  place() {
    if (!this.group) return;
    const [left, top, scale] = this.view;
    this.group.setAttribute("transform", `translate(${left} ${top}) scale(${scale})`);
  }

  move() {
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    });
    this.svg.addEventListener("pointerdown", (down) => {
      const [left, top, scale] = this.view;
      this.dragged = false;
      const move = (event) => {
        const [x, y] = [event.clientX - down.clientX, event.clientY - down.clientY];
        if (Math.abs(x) + Math.abs(y) > 4) this.dragged = true;
        this.isMoved = true;
        this.view = [left + x, top + y, scale];
        this.place();
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", () => removeEventListener("pointermove", move), { once: true });
    });
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  /** Up to what a node reads, down to what reads it, sideways along its rank. */
  key(event) {
    const zoom = { "+": 1.3, "-": 1 / 1.3 }[event.key];
    if (zoom) return this.zoom(zoom);
    if (event.key === "0") return this.fit();
    const here = this.items.findIndex((item) => item.members.includes(this.selected));
    const next = { ArrowUp: () => this.near(here, 1, 0), ArrowDown: () => this.near(here, 0, 1), ArrowLeft: () => this.beside(here, -1), ArrowRight: () => this.beside(here, 1) }[event.key];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    const item = here < 0 ? this.items[0] : next();
    if (item && item.box) this.selected = item.at;
    if (item && item.box) [this.mark(), this.center(item)];
    else if (item) this.chosen(item.at);
  }

  near(here, from, to) {
    const edge = this.edges.find((edge) => edge[from] === here);
    return edge && this.items[edge[to]];
  }

  beside(here, step) {
    const row = this.items.filter((item) => item.y === this.items[here].y).sort((a, b) => a.x - b.x);
    return row[row.indexOf(this.items[here]) + step];
  }
}
