/* The page: targets, tabs, search, and the links between source and everything else. */

class Page {
  constructor() {
    this.source = new Source((file, line) => this.linkLine(file, line), () => {});
    this.target = data.targets[0];
    this.tables = [];
    document.getElementById("title").textContent = data.title;
    document.getElementById("made-by").textContent = data.made_by;
    const targets = document.getElementById("targets");
    data.targets.forEach((target, at) => targets.append(new Option(target.title, at)));
    targets.addEventListener("change", () => this.openTarget(Number(targets.value)));
    const search = document.getElementById("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextFound();
      if (event.key === "Escape") this.search((search.value = ""));
    });
    this.search_ = search;
    document.getElementById("theme").addEventListener("click", () => this.changeTheme());
    document.addEventListener("keydown", (event) => this.key(event));
    this.dragDivider();
    if (data.targets.length) this.openTarget(0);
    else document.getElementById("panel").append(make("div", "empty", "no targets"));
  }

  openTarget(at) {
    this.target = data.targets[at];
    document.getElementById("targets").value = String(at);
    document.getElementById("summary").textContent = this.target.summary;
    document.title = `${this.target.title}: aotlens`;
    this.source.linked = null;
    this.source.showMarks(this.target.marks);
    if (this.target.span >= 0) this.source.show([[this.target.span], []], true);
    else this.source.open(0);
    this.openTab(this.tab || "overview");
  }

  openTab(id) {
    const tab = this.target.tabs.find((one) => one.id === id) || this.target.tabs[0];
    this.tab = tab.id;
    const nav = document.getElementById("tabs");
    nav.replaceChildren(
      ...this.target.tabs.map((each, at) => {
        const button = make("button", "", each.title);
        button.setAttribute("role", "tab");
        button.setAttribute("aria-selected", String(each === tab));
        button.title = String(at + 1);
        button.addEventListener("click", () => this.openTab(each.id));
        return button;
      }),
    );
    this.panel = document.getElementById("panel");
    this.panel.replaceChildren();
    this.tables = [];
    this.choices = [];
    this.curve = null;
    this.detail = make("div", "lines detail");
    this.detail.hidden = true;
    this.text = null;
    for (const block of tab.blocks) this.addBlock(block, tab.blocks.length === 1);
    this.panel.append(this.detail);
    if (this.search_.value) this.search(this.search_.value);
    else this.found("");
  }

  addBlock(block, alone) {
    if (block.kind === "lines") {
      if (!block.lines.length) return;
      const element = make("div", alone ? "lines whole" : "lines");
      element.append(...block.lines.map((line) => lineElement(line, (link, jump) => this.go(link, jump))));
      this.panel.append(element);
    } else if (block.kind === "table") {
      this.addTable(block, this.panel).element.classList.toggle("small", this.tables.length > 1);
    } else if (block.kind === "curve") {
      this.curve = new Curve(block, (index) => {
        this.choices[0].open(0);
        this.reveal(this.choices[0].table, index);
      });
      this.panel.append(this.curve.element);
    } else if (block.kind === "svg") {
      const drawing = make("div", "drawing");
      drawing.innerHTML = block.svg; // made by render/html/fit_svg.py, which escapes every text
      this.panel.append(drawing);
    } else if (block.kind === "choice") {
      this.addChoice(block);
    }
  }

  addTable(block, parent, name = "") {
    const table = new Table(block, (row, where) => this.chosen(row, where), (row) => this.source.show(row ? row[2] : null, false));
    table.name = name;
    this.tables.push(table);
    parent.append(table.element);
    return table;
  }

  addChoice(block) {
    const bar = make("div", "choices"), place = make("div");
    place.style.display = "contents";
    const choice = { block, bar, place, open: (at) => this.openChoice(choice, at) };
    this.choices.push(choice);
    this.panel.append(bar, place);
    block.items.forEach((item, at) => {
      const button = make("button", "", item.title);
      button.addEventListener("click", () => choice.open(at));
      bar.append(button);
    });
    if (block.items.length) choice.open(block.first);
  }

  openChoice(choice, at) {
    const item = choice.block.items[at];
    [...choice.bar.children].forEach((button, number) => button.setAttribute("aria-pressed", String(number === at)));
    this.tables = this.tables.filter((table) => table !== choice.table);
    choice.place.replaceChildren();
    choice.table = this.addTable(item.block, choice.place, item.name);
    this.showText([]);
    this.detail.hidden = true;
    if (this.search_.value) this.search(this.search_.value);
  }

  /** A row was picked: its source, what is known of it, its text. */
  chosen(row, table) {
    for (const other of this.tables) {
      if (other !== table && (other.selected >= 0 || other.linked.size)) {
        other.selected = -1;
        other.linked = new Set();
        other.list.redraw();
      }
    }
    this.source.show(row[2] || [[], []], true);
    const at = table.selected, lines = row[3] || [];
    this.detail.replaceChildren();
    if (row[5]) this.detail.append(neighbourhood(table, at, (number) => this.reveal(table, number)));
    this.detail.append(...lines.map((line) => lineElement(line, (link, jump) => this.go(link, jump))));
    this.detail.hidden = !this.detail.childNodes.length;
    this.detail.scrollTop = 0;
    if (this.curve && table.name === "curve") this.curve.place(at);
    this.showText(row[4] || []);
  }

  reveal(table, at) {
    if (!table || !table.rows[at]) return;
    if (!table.order.includes(at)) table.filter([]);
    table.select(at, (row, where) => this.chosen(row, where));
  }

  /** The texts of a row: a program at its statement, the module at its step, a kernel in its languages. */
  showText(texts) {
    if (!texts.length) {
      if (this.text) this.text.element.remove();
      this.text = null;
      return;
    }
    if (!this.text) {
      const element = make("div", "text"), bar = make("div", "choices"), body = make("div", "list code");
      element.append(bar, body);
      this.panel.append(element);
      this.text = { element, bar, code: new Code(body, (line) => this.textLine(line)), number: -1, label: "" };
    }
    const text = this.text;
    text.bar.hidden = texts.length < 2;
    text.bar.replaceChildren(
      ...texts.map((one) => {
        const button = make("button", "", one[0]);
        button.addEventListener("click", () => this.openText(one));
        return button;
      }),
    );
    this.openText(texts.find(([label]) => label === text.label) || texts[0]);
  }

  openText([label, number, first, last]) {
    const text = this.text;
    text.label = label;
    [...text.bar.children].forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === label)));
    if (text.number !== number) text.code.show(data.texts[number]);
    text.number = number;
    text.code.lightBlock(first, last);
  }

  /** A line of a program or of the module: the innermost row that it belongs to. */
  textLine(line) {
    for (const table of this.tables) {
      let best = -1, size = Infinity;
      table.rows.forEach((row, at) => {
        for (const [, number, first, last] of row[4] || []) {
          if (number === this.text.number && first && first <= line && line <= last && last - first < size) [best, size] = [at, last - first];
        }
      });
      if (best >= 0) return this.reveal(table, best);
    }
  }

  /** A line of the source was picked: the rows of the tab that stand for it. */
  linkLine(file, line) {
    let count = 0;
    for (const table of this.tables) count += table.link(file, line);
    this.source.linked = null;
    const whole = new Map([[line, [[0, -1, "on"]]]]);
    this.source.code.highlight(whole);
    if (this.tables.length) this.found(count ? `${count} on line ${line}` : `nothing on line ${line} in this tab`);
  }

  /** Follows a line: to its source, or to a row of a tab. */
  go(link, jump) {
    if (link) this.source.show(link, true);
    if (!jump) return;
    const [tab, text] = jump, key = data.strings[text];
    if (tab !== this.tab) this.openTab(tab);
    if (key) this.find(key);
  }

  find(key) {
    for (const choice of this.choices) {
      const at = choice.block.items.findIndex((item) => key.startsWith(`${item.name}/`));
      if (at >= 0 && choice.block.items[at].block.rows.length) {
        const rest = key.slice(choice.block.items[at].name.length + 1);
        if (choice.table.name !== choice.block.items[at].name) choice.open(at);
        if (choice.table.find(rest) >= 0) return this.reveal(choice.table, choice.table.find(rest));
      }
    }
    for (const choice of this.choices) {
      const has = (item) => item.block.rows.some((row) => data.strings[row[0]] === key);
      const at = choice.block.items.findIndex(has);
      if (at >= 0 && choice.table.find(key) < 0) choice.open(at);
    }
    const table = this.tables.find((one) => one.find(key) >= 0);
    if (table) this.reveal(table, table.find(key));
  }

  search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0, all = 0;
    for (const table of this.tables) {
      count += table.filter(words);
      all += table.rows.length;
    }
    this.lines = this.source.search(words);
    this.hit = -1;
    this.found(words.length ? `${count} of ${all} rows, ${this.lines.length} lines` : "");
  }

  nextFound() {
    if (!this.lines || !this.lines.length) return;
    this.hit = (this.hit + 1) % this.lines.length;
    this.source.code.list.reveal(this.lines[this.hit] - 1);
    this.source.code.highlight(new Map([[this.lines[this.hit], [[0, -1, "on"]]]]));
  }

  found(text) {
    document.getElementById("found").textContent = text;
  }

  changeTheme() {
    const dark = document.documentElement.classList.toggle("dark");
    remember("theme", dark ? "dark" : "light");
  }

  key(event) {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      this.search_.focus();
    } else if (event.key === "t") this.changeTheme();
    else if (this.target && /^[1-9]$/.test(event.key)) {
      const tab = this.target.tabs[Number(event.key) - 1];
      if (tab) this.openTab(tab.id);
    }
  }

  dragDivider() {
    const divider = document.getElementById("divider"), left = document.getElementById("left");
    divider.addEventListener("pointerdown", (event) => {
      divider.setPointerCapture(event.pointerId);
      const move = (moved) => (left.style.flexBasis = `${(100 * moved.clientX) / innerWidth}%`);
      divider.addEventListener("pointermove", move);
      divider.addEventListener("pointerup", () => divider.removeEventListener("pointermove", move), { once: true });
    });
  }
}

/** Storage may be forbidden to a page from a file. */
function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(`aotlens.${name}`, value);
    return localStorage.getItem(`aotlens.${name}`);
  } catch {
    return null;
  }
}

const theme = remember("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.documentElement.classList.toggle("dark", theme === "dark");
const page = new Page();
