/* What stands below a table: lines, the neighbourhood of a node, the memory curve. */

/** `act(link, jump)` is told of a line that the user picks. */
function lineElement([parts, link, jump, wraps], act) {
  const element = make("div", wraps ? "wraps" : "");
  appendParts(element, parts);
  if (link || jump) {
    element.classList.add("goes");
    element.tabIndex = 0;
    const go = () => act(link, jump);
    element.addEventListener("click", go);
    element.addEventListener("keydown", (event) => event.key === "Enter" && go());
  }
  return element;
}

const MOST_NEIGHBOURS = 12;

/** A node between what it reads and what reads it. */
function neighbourhood(table, at, walk) {
  const element = make("div", "near-nodes");
  const rows = (numbers, first, between, last) => {
    const shown = numbers.slice(0, MOST_NEIGHBOURS);
    shown.forEach((number, position) => {
      const corner = position === 0 ? first : position === shown.length - 1 ? last : between;
      element.append(nodeElement(table.rows[number], ` ${corner} `, () => walk(number)));
    });
    if (numbers.length > shown.length) element.append(make("div", "role-dim", ` … and ${numbers.length - shown.length} more`));
  };
  rows([...new Set(table.rows[at][5] || [])], "╭", "├", "├");
  element.append(nodeElement(table.rows[at], " ● ", null));
  const users = table.users(at);
  rows(users, users.length > 1 ? "├" : "╰", "├", "╰");
  return element;
}

function nodeElement(row, corner, walk) {
  const [name, operation, tensor] = row[1], element = make("div");
  element.append(make("span", walk ? "role-dim" : "role-accent", corner), make("span", walk ? "role-name" : "role-title", data.strings[name[0]].padEnd(18) + " "));
  appendParts(element, [operation]);
  element.append(make("span", "role-tensor", `  ${data.strings[tensor[0]]}`));
  if (walk) {
    element.classList.add("goes");
    element.addEventListener("click", walk);
  }
  return element;
}

/** The live bytes of each node as a curve; `chosen(index)` is told of the node that the user picks. */
class Curve {
  constructor(block, chosen) {
    this.block = block;
    this.element = make("div", "curve");
    const count = block.values.length, NS = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", `0 0 ${count} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    const add = (tag, attributes) => {
      const shape = document.createElementNS(NS, tag);
      for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
      svg.append(shape);
      return shape;
    };
    const height = (value) => 100 - (96 * value) / Math.max(1, block.peak);
    const steps = block.values.map((value, at) => `L${at} ${height(value)}L${at + 1} ${height(value)}`).join("");
    add("path", { class: "area", d: `M0 100${steps}L${count} 100Z` });
    if (block.forward > 0 && block.forward < count) add("line", { class: "edge", x1: block.forward, x2: block.forward, y1: 0, y2: 100 });
    this.mark = add("line", { class: "at", x1: -1, x2: -1, y1: 0, y2: 100 });
    const phases = block.forward > 0 && block.forward < count ? "forward ┊ backward; " : "";
    this.legend = make("div", "legend", `${phases}live bytes while each node runs, the highest is the peak`);
    this.element.append(svg, this.legend);
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      chosen(Math.min(count - 1, Math.floor(((event.clientX - box.left) / box.width) * count)));
    });
  }

  place(index) {
    for (const name of ["x1", "x2"]) this.mark.setAttribute(name, index + 0.5);
  }
}
