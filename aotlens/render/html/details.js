/* What stands below a table: lines, the neighbourhood of a node. */

/** `act(link, jump)` gets a line that the user picks. */
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
      element.append(nodeElement(table, number, ` ${corner} `, () => walk(number)));
    });
    if (numbers.length > shown.length) element.append(make("div", "role-dim", ` … and ${numbers.length - shown.length} more`));
  };
  rows([...new Set(table.rows[at][5] || [])], "╭", "├", "├");
  element.append(nodeElement(table, at, " ● ", null));
  const users = table.users(at);
  rows(users, users.length > 1 ? "├" : "╰", "├", "╰");
  return element;
}

function nodeElement(table, at, corner, walk) {
  const [name, operation, tensor] = table.shown.map((column) => table.rows[at][1][column]), element = make("div");
  element.append(make("span", walk ? "role-dim" : "role-accent", corner), make("span", walk ? "role-name" : "role-title", data.strings[name[0]].padEnd(18) + " "));
  appendParts(element, [operation]);
  element.append(make("span", "role-tensor", `  ${data.strings[tensor[0]]}`));
  if (walk) {
    element.classList.add("goes");
    element.addEventListener("click", walk);
  }
  return element;
}
