"use strict";
// The data of the page -> the graph behind each pass, and what belongs to what: nodes, lines, steps, kernels, memory.

const Tenon = {};

Tenon.load = async function () {
  const packed = atob(document.getElementById("data").textContent.trim());
  const bytes = Uint8Array.from(packed, c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

Tenon.Model = class {
  constructor(data) {
    this.data = data;
    this.passes = [{ name: "captured", seconds: 0, skipped: 0 }];
    for (const pass of data.passes) {
      if (pass.changed) this.passes.push({ ...pass, skipped: 0 });
      else this.passes[this.passes.length - 1].skipped++;
    }
    this.graphs = [makeGraph(new Map(data.nodes.map(n => [n.id, n])), null)];
    this.stepOfNode = new Map();
    this.stepsOfOrigin = data.origins.map(() => []);
    data.steps.forEach((step, k) => {
      if (step.node >= 0) this.stepOfNode.set(step.node, k);
      for (const [origin] of step.origins) if (origin >= 0) this.stepsOfOrigin[origin].push(k);
    });
    this.callsOfKernel = data.kernels.map(() => []);
    data.steps.forEach((step, k) => { if (step.kernel !== null) this.callsOfKernel[step.kernel].push(k); });
    this.lives = memoryLives(this);
    this.lineTotals = lineTotals(data);
  }

  get last() { return this.passes.length - 1; }

  // The graph behind pass k; 0 is the captured one.
  graph(k) {
    while (this.graphs.length <= k) {
      const pass = this.passes[this.graphs.length];
      const before = this.graphs[this.graphs.length - 1];
      const known = new Map(before.nodes);
      for (const n of [...pass.added, ...pass.changed_nodes, ...pass.moved]) known.set(n.id, n);
      this.graphs.push(makeGraph(new Map(pass.order.map(id => [id, known.get(id)])), before, pass));
    }
    return this.graphs[k];
  }

  origin(node) { return node && node.origin >= 0 ? this.data.origins[node.origin] : null; }

  // seconds, flops, bytes or memory life of one captured node.
  cost(origin, what) {
    if (what === "life") return this.lives[origin] || 0;
    return this.data.origins[origin][what] || 0;
  }

  nodeCost(node, what) {
    const k = this.stepOfNode.get(node.id);
    if (k !== undefined && what !== "life" && node.graphs.body) return this.data.steps[k][what] || 0;
    return node.origin >= 0 ? this.cost(node.origin, what) : 0;
  }

  sumCost(origins, what) {
    let sum = 0;
    for (const o of origins) sum = what === "life" ? Math.max(sum, this.cost(o, what)) : sum + this.cost(o, what);
    return sum;
  }

  originsOfLine(file, line) {
    const found = new Set();
    this.data.origins.forEach((o, k) => {
      if ((o.file === file && o.line === line) || o.stack.some(([f, l]) => f === file && l === line)) found.add(k);
    });
    return found;
  }

  stepsOf(origins) {
    const found = new Set();
    for (const o of origins) for (const k of this.stepsOfOrigin[o]) found.add(k);
    return found;
  }

  // The line of a node in the text form, with names that stay the same through all passes.
  text(node, graph) {
    const names = node.parent ? graph.nodes.get(node.parent[0]).graphs[node.parent[1]].params : this.data.params;
    const inputs = node.inputs.map(x => x === null ? "None" : typeof x === "string" ? x
      : x[0] >= 0 ? `n${x[0]}${graph.nodes.get(x[0])?.types.length > 1 ? `[${x[1]}]` : ""}`
        : (names[x[1]] && names[x[1]].name) || `p${x[1]}`);
    const attrs = Object.entries(node.attrs).map(([name, value]) => `${name}=${value}`);
    const inner = Object.keys(node.graphs).map(name => `${name}=...`);
    return `n${node.id}: ${node.types.join(", ")} = ${node.op}(${[...inputs, ...attrs, ...inner].join(", ")})`;
  }
};

function makeGraph(nodes, before, pass = null) {
  const users = new Map(), children = new Map();
  for (const node of nodes.values()) {
    users.set(node.id, users.get(node.id) || []);
    for (const id of sources(node)) {
      if (!users.has(id)) users.set(id, []);
      users.get(id).push(node.id);
    }
    if (node.parent) {
      if (!children.has(node.parent[0])) children.set(node.parent[0], []);
      children.get(node.parent[0]).push(node.id);
    }
  }
  const marks = new Map();
  if (pass) {
    for (const n of pass.added) marks.set(n.id, "added");
    for (const n of pass.changed_nodes) marks.set(n.id, "changed");
    for (const n of pass.moved) marks.set(n.id, "moved");
  }
  const gone = new Set(pass ? pass.removed : []);
  for (const id of gone) marks.set(id, "removed");
  const graph = { nodes, users, children, marks, gone, before };
  graph.originsOf = id => {
    const found = new Set(), stack = [id];
    while (stack.length) {
      const node = nodes.get(stack.pop());
      if (node.origin >= 0) found.add(node.origin);
      stack.push(...(children.get(node.id) || []));
    }
    return found;
  };
  return graph;
}

// The nodes that a node reads, each once.
function sources(node) {
  const found = new Set(node.after);
  for (const x of node.inputs) if (Array.isArray(x) && x[0] >= 0) found.add(x[0]);
  return found;
}
Tenon.sources = sources;

// Of each captured node: through how many steps what it stores has to be kept.
function memoryLives(model) {
  const lives = model.data.origins.map(() => 0);
  for (const place of model.data.arena ? model.data.arena.places : []) {
    for (const [origin] of model.data.steps[place.step]?.origins || []) {
      if (origin >= 0) lives[origin] = Math.max(lives[origin], place.last - place.first);
    }
  }
  return lives;
}

// For every line of every file: how many captured nodes, and their cost, by the innermost line and by calls from it.
function lineTotals(data) {
  const totals = data.files.map(() => new Map());
  data.origins.forEach(o => {
    const seen = new Set();
    for (const [file, line] of [...o.stack, [o.file, o.line]]) {
      const key = `${file}:${line}`;
      if (file < 0 || seen.has(key)) continue;
      seen.add(key);
      const sum = totals[file].get(line) || { nodes: 0, seconds: 0, bytes: 0, flops: 0, own: 0, ownSeconds: 0 };
      sum.nodes++;
      for (const what of ["seconds", "bytes", "flops"]) sum[what] += o[what] || 0;
      if (file === o.file && line === o.line) { sum.own++; sum.ownSeconds += o.seconds || 0; }
      totals[file].set(line, sum);
    }
  });
  return totals;
}

// ------------------------------------------------------------ numbers in words

Tenon.say = {
  seconds: s => !s ? "0" : s >= 1 ? `${s.toPrecision(3)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms`
    : s >= 1e-6 ? `${(s * 1e6).toPrecision(3)} µs` : `${(s * 1e9).toPrecision(3)} ns`,
  bytes: b => scaled(b, ["B", "KB", "MB", "GB", "TB"]),
  flops: f => scaled(f, ["FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]),
  life: n => `${n} step${n === 1 ? "" : "s"}`,
};

function scaled(number, units) {
  let k = 0;
  while (number >= 1000 && k < units.length - 1) { number /= 1000; k++; }
  return `${k || number % 1 ? Number(number.toPrecision(3)) : number} ${units[k]}`;
}

// An element with attributes, listeners (on...) and children; the one way in which this page makes any.
Tenon.make = function (tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(c => c !== null && c !== undefined));
  return element;
};
