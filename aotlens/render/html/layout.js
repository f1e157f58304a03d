/* Positions for a directed graph in layers: ranks, order within a rank, then x, each by the neighbours' average. */

const GAP_X = 22, GAP_Y = 30, SWEEPS = 6;

/**
 * `items` are `{width, height}` in the order of the program, `edges` are `[from, to]`. An edge against that order
 * does not count for the ranks. Returns the items' `{x, y}` of their centres, and the points of each edge.
 */
function layOut(items, edges) {
  const ahead = edges.filter(([from, to]) => from < to);
  const vertices = items.map(({ width, height }) => ({ width, height, rank: 0, up: [], down: [], x: 0 }));
  rankAll(vertices, ahead);
  const chains = addBends(vertices, ahead);
  const rows = orderRows(vertices);
  placeRows(rows);
  let top = 0;
  for (const row of rows) {
    const height = Math.max(20, ...row.map((vertex) => vertex.height));
    for (const vertex of row) [vertex.y, vertex.room] = [top + height / 2, height];
    top += height + GAP_Y;
  }
  const left = Math.min(0, ...vertices.map((vertex) => vertex.x - vertex.width / 2));
  for (const vertex of vertices) vertex.x -= left;
  const paths = edges.map(([from, to], number) => edgePath(vertices[from], vertices[to], (chains.get(`${from} ${to}`) || []).map((bend) => vertices[bend])));
  const width = Math.max(1, ...vertices.map((vertex) => vertex.x + vertex.width / 2));
  return { places: vertices.slice(0, items.length), paths, width, height: top };
}

/** One more than the deepest of what an item reads; what reads nothing is just above its first user. */
function rankAll(vertices, edges) {
  const readers = new Map();
  for (const [from, to] of edges.slice().sort((a, b) => a[1] - b[1])) {
    vertices[to].rank = Math.max(vertices[to].rank, vertices[from].rank + 1);
    readers.set(from, [...(readers.get(from) || []), to]);
    vertices[to].reads = true;
  }
  // Sources pull down from the last to the first, so that a chain of them stays in order.
  vertices.forEach((vertex, at) => {
    if (!vertex.reads && readers.has(at)) vertex.rank = Math.min(...readers.get(at).map((to) => vertices[to].rank)) - 1;
  });
}

/** Edges over several ranks bend in each rank between; those of one source share their bends. */
function addBends(vertices, edges) {
  const own = new Map(), chains = new Map();
  for (const [from, to] of edges) {
    const chain = own.get(from) || [];
    own.set(from, chain);
    const first = vertices[from].rank + 1, last = vertices[to].rank;
    for (let rank = first + chain.length; rank < last; rank++) {
      chain.push(vertices.length);
      vertices.push({ width: 6, height: 0, rank, up: [], down: [], x: 0, bend: true });
      join(vertices, chain.length > 1 ? chain[chain.length - 2] : from, vertices.length - 1);
    }
    const bends = chain.slice(0, Math.max(0, last - first));
    join(vertices, bends.length ? bends[bends.length - 1] : from, to);
    chains.set(`${from} ${to}`, bends);
  }
  return chains;
}

function join(vertices, upper, lower) {
  vertices[upper].down.push(vertices[lower]);
  vertices[lower].up.push(vertices[upper]);
}

/** Each rank ordered by the average position of its neighbours, down and up in turn. */
function orderRows(vertices) {
  const rows = [];
  for (const vertex of vertices) (rows[vertex.rank] ??= []).push(vertex);
  for (let rank = 0; rank < rows.length; rank++) rows[rank] ??= [];
  const number = (row) => row.forEach((vertex, at) => (vertex.order = at));
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : rows.slice().reverse()) {
      for (const vertex of row) vertex.wish = average((down ? vertex.up : vertex.down).map((near) => near.order), vertex.order);
      row.sort((a, b) => a.wish - b.wish);
      number(row);
    }
  }
  return rows;
}

function average(numbers, otherwise) {
  return numbers.length ? numbers.reduce((sum, number) => sum + number, 0) / numbers.length : otherwise;
}

function placeRows(rows) {
  for (const row of rows) {
    let x = 0;
    for (const vertex of row) {
      vertex.x = x + vertex.width / 2;
      x += vertex.width + GAP_X;
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : rows.slice().reverse()) {
      const near = (vertex) => (sweep < 2 ? (down ? vertex.up : vertex.down) : [...vertex.up, ...vertex.down]);
      spread(row, row.map((vertex) => average(near(vertex).map((other) => other.x), vertex.x)));
    }
  }
}

/** The positions nearest to the wishes (least squares) that keep order and distance: pools adjacent violators. */
function spread(row, wishes) {
  const pools = [];
  let offset = 0;
  const offsets = row.map((vertex, at) => (at ? (offset += (row[at - 1].width + vertex.width) / 2 + GAP_X) : 0));
  row.forEach((vertex, at) => {
    const weight = vertex.bend ? 4 : 1;
    pools.push({ sum: weight * (wishes[at] - offsets[at]), weight, count: 1 });
    while (pools.length > 1 && mean(pools[pools.length - 2]) > mean(pools[pools.length - 1])) {
      const last = pools.pop(), pool = pools[pools.length - 1];
      for (const name of ["sum", "weight", "count"]) pool[name] += last[name];
    }
  });
  let at = 0;
  for (const pool of pools) for (let index = 0; index < pool.count; index++, at++) row[at].x = mean(pool) + offsets[at];
}

function mean(pool) {
  return pool.sum / pool.weight;
}

/** A smooth path from the lower edge of an item, through its bends, to the upper edge of another one. */
function edgePath(from, to, bends) {
  let [x, y] = [from.x, from.y + from.height / 2];
  let path = `M${x.toFixed(1)} ${y.toFixed(1)}`;
  const curve = (nextX, nextY) => {
    const middle = ((y + nextY) / 2).toFixed(1);
    path += `C${x.toFixed(1)} ${middle} ${nextX.toFixed(1)} ${middle} ${nextX.toFixed(1)} ${nextY.toFixed(1)}`;
    [x, y] = [nextX, nextY];
  };
  for (const bend of bends) {
    curve(bend.x, bend.y - bend.room / 2);
    path += `V${(bend.y + bend.room / 2).toFixed(1)}`;
    y = bend.y + bend.room / 2;
  }
  curve(to.x, to.y - to.height / 2);
  return path;
}
