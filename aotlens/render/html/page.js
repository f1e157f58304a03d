/* The page: targets, tabs, search, and the links between source and everything else. */

const LINE_KEY = /^line:(?:(.+):)?(\d+)$/;

class Page {
  constructor() {
    this.source = new Source((file, line) => this.linkLine(file, line, true), () => {});
    this.search_ = document.getElementById("search");
    this.panel = new Panel(this, (key, isStep) => this.setAddress(key, isStep));
    this.address = new Address((parts) => this.open(parts));
    document.getElementById("title").textContent = data.title;
    document.getElementById("made-by").textContent = data.made_by;
    const targets = document.getElementById("targets");
    data.targets.forEach((target, at) => targets.append(new Option(target.title, at)));
    targets.addEventListener("change", () => {
      this.openTarget(Number(targets.value));
      this.setAddress("", true);
    });
    this.search_.addEventListener("input", () => this.search(this.search_.value));
    this.search_.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextFound();
      if (event.key === "Escape") this.search((this.search_.value = ""));
    });
    document.getElementById("theme").addEventListener("click", () => this.changeTheme());
    document.getElementById("folds").addEventListener("click", () => this.panel.unfold());
    document.addEventListener("keydown", (event) => this.key(event));
    this.dragDivider();
    for (const id of ["left", "divider"]) document.getElementById(id).hidden = !data.files.length;
  }

  /** Shows what an address names; parts that the page lacks are reported beside the search. */
  open([name, tab, key]) {
    if (!data.targets.length) return void document.getElementById("panel").append(make("div", "empty", "no targets"));
    const index = data.targets.findIndex((target) => target.address === name);
    const target = data.targets[Math.max(0, index)], known = target.tabs.some((one) => one.id === tab);
    if (target !== this.target) this.openTarget(data.targets.indexOf(target), known ? tab : undefined);
    else this.openTab(known ? tab : target.tabs[0].id);
    const missing = name && index < 0 ? `target ${name}` : tab && !known ? `tab ${tab}` : key && !this.openKey(key) ? key : "";
    if (missing) this.found(`not in this page: ${missing}`);
  }

  openKey(key) {
    const [, name, number] = key.match(LINE_KEY) || [];
    if (!number) return this.panel.find(key);
    const home = this.target.span >= 0 ? data.spans[this.target.span][0] : 0;
    const file = name ? data.files.findIndex((one) => one.name === name || one.name.endsWith(`/${name}`)) : home;
    if (!data.files[file] || Number(number) > data.files[file].lines.length) return false;
    this.source.open(file);
    this.source.code.list.reveal(Number(number) - 1);
    this.linkLine(file, Number(number));
    return true;
  }

  setAddress(key, isStep) {
    if (this.target) this.address.set([this.target.address, this.tab, key], isStep);
  }

  openTarget(at, tab = this.tab) {
    this.target = data.targets[at];
    document.getElementById("targets").value = String(at);
    document.getElementById("summary").textContent = this.target.summary;
    document.title = `${this.target.title}: aotlens`;
    this.source.linked = null;
    this.source.showMarks(this.target.marks);
    if (this.target.span >= 0) this.source.show([[this.target.span], []], true);
    else this.source.open(0);
    this.openTab(this.target.tabs.some((one) => one.id === tab) ? tab : this.target.tabs[0].id);
  }

  openTab(id) {
    this.tab = id;
    const nav = document.getElementById("tabs");
    nav.replaceChildren(
      ...this.target.tabs.map((tab, at) => {
        const button = make("button", "", tab.title);
        button.setAttribute("role", "tab");
        button.setAttribute("aria-selected", String(tab.id === id));
        button.title = String(at + 1);
        button.addEventListener("click", () => this.goTab(tab.id));
        return button;
      }),
    );
    this.panel.show(this.target.tabs.find((one) => one.id === id));
    if (!this.search_.value) this.found("");
    this.searchAgain();
  }

  goTab(id) {
    this.openTab(id);
    this.setAddress("", true);
  }

  /** A line of the source was picked: the rows of the tab that stand for it. */
  linkLine(file, line, isStep = false) {
    const count = this.panel.link(file, line);
    this.source.linked = null;
    this.source.code.highlight(new Map([[line, [[0, -1, "on"]]]]));
    if (this.panel.tables.length) this.found(count ? `${count} on line ${line}` : `nothing on line ${line} in this tab`);
    const home = this.target.span >= 0 ? data.spans[this.target.span][0] : 0;
    this.setAddress(file === home ? `line:${line}` : `line:${data.files[file].name}:${line}`, isStep);
  }

  /** Follows a line: to its source, or to a row of a tab. */
  go(link, jump) {
    if (link) this.source.show(link, true);
    if (!jump) return;
    const [tab, text, target] = jump, key = data.strings[text];
    if (target !== undefined && data.targets[target] !== this.target) this.openTarget(target);
    if (!this.target.tabs.some((one) => one.id === tab)) return;
    if (tab !== this.tab) this.goTab(tab);
    if (key) this.find(key);
  }

  find(key) {
    return this.panel.find(key);
  }

  searchAgain() {
    if (this.search_.value) this.search(this.search_.value);
  }

  search(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const [count, all] = this.panel.search(words);
    this.lines = this.source.search(words);
    this.hit = -1;
    this.found(words.length ? `${count} of ${all} rows, ${this.lines.length} lines` : "");
  }

  /** The next match: in a drawing that is shown, else in the source. */
  nextFound() {
    if (this.panel.drawing && this.panel.view === "drawing" && this.panel.drawing.nextHit()) return;
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
    else if (event.key === "u") this.panel.unfold();
    else if (this.target && /^[1-9]$/.test(event.key)) {
      const tab = this.target.tabs[Number(event.key) - 1];
      if (tab) this.goTab(tab.id);
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
page.address.read();
