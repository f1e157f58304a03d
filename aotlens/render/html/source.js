/* Code with line numbers: the user's source with marks and highlights, and programs, modules and kernels. */

const TOKENS = /(#.*|\/\/.*|^\s*;.*)|("[^"]*"|'[^']*')|\b(def|class|return|with|if|else|for|in|import|from|as|not|and|or|None|True|False|lambda|del)\b|\b(\d[\w.]*)/g;
const KINDS = ["comment", "string", "keyword", "number"];

/** The coloured runs of a generated line. */
function runsOf(line) {
  const runs = [];
  for (const found of line.matchAll(TOKENS)) {
    const kind = KINDS[found.slice(1).findIndex((group) => group !== undefined)];
    runs.push(found.index, found.index + found[0].length, kind);
  }
  return runs;
}

class Code {
  /** `chosen(line)` gets the 1-based line that the user picks. */
  constructor(element, chosen, hovered = () => {}) {
    this.text = { lines: [], problem: "" };
    this.highlights = new Map();
    this.marks = new Map();
    this.found = new Set();
    this.block = [0, -1];
    this.list = new List(element, (index, row) => this.drawRow(index, row));
    element.addEventListener("click", (event) => {
      const index = List.at(event);
      if (index >= 0) chosen(index + 1);
    });
    element.addEventListener("mouseover", (event) => hovered(List.at(event) + 1));
    element.addEventListener("mouseleave", () => hovered(0));
  }

  show(text, marks = null) {
    this.text = text.problem ? { lines: text.problem.split("\n").map((line) => [line]), problem: "" } : text;
    this.marks = marks || new Map();
    this.hasMarks = marks !== null;
    this.list.show(this.text.lines.length);
  }

  /** By line: `[start, end, name of the class]`, end -1 for the whole rest. */
  highlight(highlights) {
    this.highlights = highlights;
    this.list.redraw();
  }

  lightBlock(first, last) {
    this.block = [first, last];
    if (first > 0) this.list.reveal(first - 1);
    else this.list.redraw();
  }

  drawRow(index, row) {
    const number = index + 1, [line, ...known] = this.text.lines[index];
    const runs = known.length || this.hasMarks ? known : runsOf(line);
    if (number >= this.block[0] && number <= this.block[1]) row.classList.add("block");
    if (this.found.has(number)) row.classList.add("found");
    row.append(make("span", "number", String(number)));
    if (this.hasMarks) {
      const mark = this.marks.get(number), element = make("span", "mark", mark ? mark.text : "");
      if (mark) element.title = mark.title;
      row.append(element);
    } else {
      row.append(make("span", "", "  "));
    }
    this.appendCode(row, line, runs, this.highlights.get(number) || []);
  }

  appendCode(row, line, runs, lights) {
    const cuts = new Set([0, line.length]);
    for (let at = 0; at < runs.length; at += 3) cuts.add(runs[at]).add(runs[at + 1]);
    for (const [start, end] of lights) cuts.add(start).add(end < 0 ? line.length : end);
    const edges = [...cuts].filter((cut) => cut <= line.length).sort((a, b) => a - b);
    for (let at = 0; at + 1 < edges.length; at++) {
      const start = edges[at], names = [];
      for (let run = 0; run < runs.length; run += 3) {
        if (runs[run] <= start && start < runs[run + 1]) names.push(`sx-${runs[run + 2]}`);
      }
      for (const [from, to, name] of lights) if (from <= start && (to < 0 || start < to)) names.push(name);
      row.append(make("span", names.join(" "), line.slice(start, edges[at + 1])));
    }
  }
}

/** The source pane: one file at a time, with what a link points at. */
class Source {
  constructor(chosen, hovered) {
    this.file = -1;
    this.select = document.getElementById("files");
    this.code = new Code(document.getElementById("source"), (line) => chosen(this.file, line), (line) => hovered(this.file, line));
    data.files.forEach((file, at) => this.select.append(new Option(file.name, at)));
    this.select.hidden = data.files.length < 2;
    this.select.addEventListener("change", () => this.open(Number(this.select.value)));
    this.marks = [];
    this.linked = null;
  }

  /** The marks of a target: `[file, line, saved, mutates, aliases, severity]`. */
  showMarks(marks) {
    this.marks = data.files.map(() => new Map());
    for (const [file, line, saved, mutates, aliases, worst] of marks) {
      const told = [saved && `${saved} saved for the backward`, mutates && "an argument is written to", aliases && "a result shares memory", worst && "a diagnostic"];
      const letters = `${worst}${mutates ? "!" : ""}${aliases ? "&" : ""}`;
      this.marks[file].set(line, { text: `${letters} ${saved}`.trim(), title: told.filter(Boolean).join(", ") });
    }
    const file = this.file;
    this.file = -1;
    if (file >= 0) this.open(file);
  }

  open(file) {
    if (file === this.file || !data.files[file]) return;
    this.file = file;
    this.select.value = String(file);
    this.code.highlights = this.lightsOf(this.linked);
    this.code.show(data.files[file], this.marks[file] || new Map());
    this.code.list.element.scrollTop = 0;
    this.code.list.redraw();
  }

  /** Highlights what a link points at; with `follow` it is brought into view. */
  show(link, follow) {
    if (follow) {
      this.linked = link;
      const first = link && (link[0][0] ?? link[1][0]);
      if (first !== undefined && first !== null && link) {
        const [file, line] = data.spans[first];
        this.open(file);
        this.code.list.reveal(line - 1);
      }
    }
    this.code.highlight(this.lightsOf(link || this.linked));
  }

  lightsOf(link) {
    const found = new Map();
    if (!link) return found;
    for (const [side, name] of [[1, "near"], [0, "on"]]) {
      for (const span of link[side]) {
        const [file, line, start, endLine, end] = data.spans[span];
        if (file !== this.file) continue;
        for (let number = line; number <= endLine; number++) {
          const row = [number === line ? start : 0, number === endLine ? end : -1, name];
          if (found.has(number)) found.get(number).push(row);
          else found.set(number, [row]);
        }
      }
    }
    return found;
  }

  /** Marks the lines that hold every word; their numbers. */
  search(words) {
    const lines = this.file >= 0 ? data.files[this.file].lines : [];
    const hits = words.length ? lines.map(([line], at) => [line.toLowerCase(), at + 1]).filter(([line]) => words.every((word) => line.includes(word))) : [];
    this.code.found = new Set(hits.map(([, number]) => number));
    this.code.list.redraw();
    return [...this.code.found];
  }
}
