/* The tab that is shown: its lines, tables, charts and drawings, the details of a row, its texts. */

class Panel {
  /** `page` shows the source and follows jumps; `moved(key, isStep)` is called for what the reader picks. */
  constructor(page, moved) {
    this.page = page;
    this.moved = moved;
    this.element = document.getElementById("panel");
    this.view = "drawing";
    this.unfolded = false;
  }

  show(tab) {
    this.tab = tab.id;
    this.element.replaceChildren();
    Object.assign(this, { tables: [], choices: [], chart: null, drawing: null, text: null });
    this.detail = make("div", "lines detail");
    this.detail.hidden = true;
    for (const block of tab.blocks) this.addBlock(block, this.element, tab.blocks.length === 1);
    this.element.append(this.detail);
    this.showFolds();
  }

  addBlock(block, parent, alone = false, name = this.tab) {
    if (block.kind === "lines") {
      if (!block.lines.length) return;
      const element = make("div", alone ? "lines whole" : "lines");
      element.append(...block.lines.map((line) => lineElement(line, (link, jump) => this.page.go(link, jump))));
      parent.append(element);
    } else if (block.kind === "table") {
      this.addTable(block, parent, name).element.classList.toggle("small", this.tables.length > 1);
    } else if (block.kind === "chart") {
      this.addChart(block, parent);
    } else if (block.kind === "graph") {
      this.addGraph(block, parent, name);
    } else if (block.kind === "svg") {
      const figure = make("div", "figure");
      figure.innerHTML = block.svg; // made by render/html/fit_svg.py, which escapes every text
      parent.append(figure);
    } else if (block.kind === "choice") {
      this.addChoice(block);
    }
  }

  addTable(block, parent, name) {
    const table = new Table(block, (row, where, isStep) => this.chosen(row, where, isStep), (row) => this.page.source.show(row ? row[2] : null, false));
    table.name = name;
    table.shown = block.shown;
    if (this.unfolded) table.unfold(true);
    this.tables.push(table);
    parent.append(table.element);
    return table;
  }

  addChart(block, parent) {
    const pick = block.rows && ((index) => {
      this.choices[0].open(0);
      this.reveal(this.tables.find((table) => table.name === block.rows), index, true);
    });
    const chart = new Chart(block, pick || null);
    if (block.rows) this.chart = chart;
    parent.append(chart.element);
    chart.draw();
  }

  /** The drawing and the table of one graph; one of them is shown. */
  addGraph(block, parent, name) {
    const table = this.addTable(block.table, parent, name);
    const drawing = new Drawing(block, table, (at) => this.reveal(table, at, true));
    this.drawing = drawing;
    const bar = make("div", "choices");
    this.views = make("span", "views");
    for (const view of ["drawing", "table"]) {
      const button = make("button", "", view);
      button.addEventListener("click", () => this.showView(view));
      this.views.append(button);
    }
    bar.append(this.views, drawing.bar);
    parent.prepend(bar);
    parent.append(drawing.element);
    this.showView(this.view);
  }

  showView(view) {
    this.view = view;
    const { drawing } = this, table = drawing.table;
    drawing.element.hidden = drawing.bar.hidden = view !== "drawing";
    table.element.hidden = view === "drawing";
    for (const button of this.views.children) button.setAttribute("aria-pressed", String(button.textContent === view));
    if (table.selected < 0) return;
    if (view === "drawing") drawing.reveal(table.selected);
    else table.list.reveal(table.indexOf(table.selected));
    this.showText(view === "drawing" ? [] : table.rows[table.selected][4] || []);
  }

  addChoice(block) {
    const bar = make("div", "choices"), content = make("div", "chosen");
    const choice = { block, bar, content, tables: [], open: (at) => this.openChoice(choice, at) };
    this.choices.push(choice);
    this.element.append(bar, content);
    block.items.forEach((item, at) => {
      const button = make("button", "", item.title);
      button.addEventListener("click", () => {
        choice.open(at);
        this.moved(item.name, true);
      });
      bar.append(button);
    });
    if (block.items.length) choice.open(block.first);
  }

  openChoice(choice, at) {
    const item = choice.block.items[at];
    choice.name = item.name;
    [...choice.bar.querySelectorAll(":scope > button")].forEach((button, number) => button.setAttribute("aria-pressed", String(number === at)));
    this.tables = this.tables.filter((table) => !choice.tables.includes(table));
    choice.content.replaceChildren();
    const others = this.tables.length;
    for (const block of item.blocks) this.addBlock(block, choice.content, false, item.name);
    choice.tables = this.tables.slice(others);
    this.showText(item.texts || []);
    this.detail.hidden = true;
    this.showFolds();
    this.page.searchAgain();
  }

  // Identical layers.

  showFolds() {
    const folds = this.tables.some((table) => table.groups.length);
    const button = document.getElementById("folds");
    button.hidden = !folds;
    button.textContent = this.unfolded ? "Fold layers" : "Unfold layers";
  }

  unfold() {
    this.unfolded = !this.unfolded;
    for (const table of this.tables) if (table.groups.length) table.unfold(this.unfolded);
    this.showFolds();
  }

  // Rows.

  /** A row was picked: its source, what is known of it, its text. */
  chosen(row, table, isStep) {
    for (const other of this.tables) {
      if (other !== table && (other.selected >= 0 || other.linked.size)) {
        other.selected = -1;
        other.linked = new Set();
        other.list.redraw();
      }
    }
    this.page.source.show(row[2] || [[], []], true);
    const at = table.selected, lines = row[3] || [];
    this.detail.replaceChildren();
    if (row[5]) this.detail.append(neighbourhood(table, at, (number) => this.reveal(table, number, true)));
    this.detail.append(...lines.map((line) => lineElement(line, (link, jump) => this.page.go(link, jump))));
    this.detail.hidden = !this.detail.childNodes.length;
    this.detail.scrollTop = 0;
    if (this.chart && table.name === this.chart.block.rows) this.chart.select(at);
    const isDrawn = this.drawing?.table === table && this.view === "drawing";
    if (isDrawn) this.drawing.reveal(at);
    this.showText(isDrawn ? [] : row[4] || []);
    this.moved(this.keyOf(table, at), isStep);
  }

  keyOf(table, at) {
    const isChoice = this.choices.some((choice) => choice.tables.includes(table));
    return isChoice ? `${table.name}/${table.key(at)}` : table.key(at);
  }

  reveal(table, at, isStep = false) {
    if (!table || !table.rows[at]) return;
    if (table.indexOf(at) < 0) table.filter([]);
    table.select(at, (row, where) => this.chosen(row, where, isStep));
  }

  /** Shows what a key names: a list of a choice, or a row; whether there is one. */
  find(key) {
    for (const choice of this.choices) {
      const at = choice.block.items.findIndex((item) => key === item.name || key.startsWith(`${item.name}/`));
      if (at < 0) continue;
      const name = choice.block.items[at].name, rest = key.slice(name.length + 1);
      if (choice.name !== name) choice.open(at);
      if (!rest) return true;
      if (this.findIn(choice.tables, rest)) return true;
    }
    for (const choice of this.choices) {
      const has = (item) => item.blocks.some((block) => (block.table || block).rows?.some?.((row) => data.strings[row[0]] === key));
      const at = choice.block.items.findIndex(has);
      if (at >= 0 && choice.name !== choice.block.items[at].name) choice.open(at);
    }
    return this.findIn(this.tables, key);
  }

  findIn(tables, key) {
    const table = tables.find((one) => one.find(key) >= 0);
    if (table) this.reveal(table, table.find(key));
    return Boolean(table);
  }

  /** Marks the rows that stand for a line of the source; how many there are. */
  link(file, line) {
    return this.tables.reduce((count, table) => count + table.link(file, line), 0);
  }

  /** How many rows hold every word, and of how many. */
  search(words) {
    let count = 0, all = 0;
    for (const table of this.tables) {
      count += table.filter(words);
      all += table.rows.length;
    }
    this.drawing?.search(words);
    return [count, all];
  }

  // Texts.

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
      this.element.append(element);
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
      if (best >= 0) return this.reveal(table, best, true);
    }
  }
}
