/* Charts with axes, from positions that the report's program computed. */

class Chart {
  /** `chosen(index)` is called with the point that the user picks. */
  constructor(block, chosen = null) {
    this.block = block;
    this.chosen = chosen;
    this.element = make("div", `chart ${block.role}`);
    this.svg = shape("svg", { role: "img", "aria-label": block.title }, this.element);
    this.selected = -1;
    new ResizeObserver(() => this.draw()).observe(this.element);
    if (chosen) this.svg.addEventListener("click", (event) => this.pick(event));
  }

  draw() {
    const width = this.element.clientWidth, height = this.element.clientHeight;
    if (!width || !height) return;
    const { x, y, scale } = this.block, longest = Math.max(...y.ticks.map(([, text]) => text.length));
    this.area = { left: longest * 6.4 + 30, top: 6, right: width - 10, bottom: height - 34 };
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { left, top, right, bottom } = this.area;
    this.x = (part) => left + ((right - left) * part) / scale;
    this.y = (part) => bottom - ((bottom - top) * part) / scale;
    for (const [part, text] of y.ticks) {
      shape("line", { class: "grid", x1: left, x2: right, y1: this.y(part), y2: this.y(part) }, this.svg);
      this.text(text, left - 5, this.y(part) + 4, "end");
    }
    for (const [part, text] of x.ticks) {
      shape("line", { class: "tick", x1: this.x(part), x2: this.x(part), y1: bottom, y2: bottom + 4 }, this.svg);
      this.text(text, this.x(part), bottom + 15, "middle");
    }
    this.text(x.title, (left + right) / 2, height - 4, "middle");
    this.text(y.title, 0, 0, "middle").setAttribute("transform", `translate(11 ${(top + bottom) / 2}) rotate(-90)`);
    if (this.block.shape === "steps") this.drawSteps();
    else this.drawPoints();
    for (const mark of this.block.marks) this.drawMark(mark);
    this.line = shape("line", { class: "at", y1: top, y2: bottom }, this.svg);
    this.select(this.selected);
  }

  text(text, x, y, anchor, name = "") {
    const element = shape("text", { x, y, "text-anchor": anchor, class: name }, this.svg);
    element.textContent = text;
    return element;
  }

  drawSteps() {
    const { points } = this.block, { left, right, bottom } = this.area;
    const steps = points.map(([x, y], index) => `H${this.x(x).toFixed(1)}V${this.y(y).toFixed(1)}${index + 1 < points.length ? "" : `H${right}`}`);
    shape("path", { class: "area", d: `M${left} ${bottom}${steps.join("")}V${bottom}Z` }, this.svg);
  }

  drawPoints() {
    const { points, texts } = this.block;
    shape("path", { class: "joined", d: points.map(([x, y], index) => `${index ? "L" : "M"}${this.x(x)} ${this.y(y)}`).join("") }, this.svg);
    points.forEach(([x, y], index) => {
      const point = shape("circle", { class: "point", cx: this.x(x), cy: this.y(y), r: 3 }, this.svg);
      shape("title", {}, point).textContent = texts[index];
    });
  }

  /** A label stays inside of the area: to the right of its point, to the left in the right half. */
  drawMark([kind, x, y, text]) {
    const { left, right, top, bottom } = this.area, across = this.x(x), side = across > (left + right) / 2 ? -1 : 1;
    if (kind === "border") {
      shape("line", { class: "border", x1: across, x2: across, y1: top, y2: bottom }, this.svg);
      this.text(text, across + side * 6, bottom - 6, side < 0 ? "end" : "start", "label");
      return;
    }
    shape("circle", { class: `mark ${kind}`, cx: across, cy: this.y(y), r: 4.5 }, this.svg);
    this.text(text, across + side * 9, this.y(y) - 4, side < 0 ? "end" : "start", "label strong");
  }

  pick(event) {
    const box = this.svg.getBoundingClientRect(), { left, right } = this.area;
    const part = (event.clientX - box.left - left) / (right - left), count = this.block.points.length;
    if (part >= 0 && part <= 1) this.chosen(Math.min(count - 1, Math.floor(part * count)));
  }

  /** Marks the selected point. */
  select(index) {
    this.selected = index;
    if (!this.line) return;
    const x = index < 0 ? -9 : this.x(((index + 0.5) * this.block.scale) / this.block.points.length);
    for (const name of ["x1", "x2"]) this.line.setAttribute(name, x);
  }
}
