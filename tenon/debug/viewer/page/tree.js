"use strict";
// A graph -> a tree of boxes: forward, backward and update side by side, modules inside, nodes and sub-graphs in these.
//
// An edge between two nodes belongs to the innermost box that holds both, between the two children that lead to them.

(function () {
  const LANES = ["forward", "backward", "update"];
  const MANY = 36;        // nodes side by side in one box, before those of a line are a box of their own
  const MANY_LOOSE = 6;   // the same outside of all modules

  Tenon.buildTree = function (model, k) {
    const graph = model.graph(k);
    const root = box("root", "", null, "root");
    const lanes = Object.fromEntries(LANES.map(name => [name, box(name, name, null, "lane")]));
    const byNode = new Map();
    for (const node of graph.nodes.values()) {
      if (node.parent) continue;
      const origin = model.origin(node);
      const lane = lanes[origin ? origin.phase : "forward"];
      place(model, graph, node, modules(lane, origin, byNode), byNode);
    }
    for (const node of Tenon.ghosts(graph)) {
      const origin = model.origin(node);
      const item = adopt(modules(lanes[origin ? origin.phase : "forward"], origin), box(`n${node.id}`, node.op, node, "node"));
      item.ghost = true;
      byNode.set(node.id, item);
    }
    addParams(model, lanes.forward, byNode);
    for (const name of LANES) if (lanes[name].children.length) adopt(root, lanes[name]);
    foldLines(model, root);
    finish(model, graph, root);
    addEdges(model, graph, byNode);
    return { root, byNode, graph };
  };

  function box(key, title, node, kind) {
    return { key, title, node, kind, children: [], parent: null, edges: new Map(), byTitle: new Map() };
  }

  function adopt(parent, child) {
    child.parent = parent;
    child.depth = (parent.depth || 0) + 1;
    parent.children.push(child);
    return child;
  }

  // The box of the module that a node belongs to, made where it is not there.
  function modules(start, origin) {
    let at = start;
    for (const name of origin && origin.path ? origin.path.split(".") : []) {
      let inner = at.byTitle.get(name);
      if (!inner) {
        inner = adopt(at, box(`${at.key}/${name}`, name, null, "module"));
        at.byTitle.set(name, inner);
      }
      at = inner;
    }
    if (origin && at.kind === "module" && !at.says) at.says = origin.kind;
    return at;
  }

  function place(model, graph, node, parent, byNode) {
    const item = adopt(parent, box(`n${node.id}`, node.op, node, "node"));
    byNode.set(node.id, item);
    const attributes = Object.keys(node.graphs);
    for (const id of graph.children.get(node.id) || []) {
      const inner = graph.nodes.get(id);
      let at = item;
      if (attributes.length > 1) {
        const name = inner.parent[1];
        at = item.byTitle.get(name);
        if (!at) {
          at = adopt(item, box(`${item.key}/${name}`, name, null, "graph"));
          item.byTitle.set(name, at);
        }
      }
      place(model, graph, inner, at, byNode);
    }
  }

  function addParams(model, lane, byNode) {
    model.data.params.forEach((param, k) => {
      if (param.kind !== "argument") return;
      const item = adopt(lane, box(`p${k}`, param.name, null, "param"));
      item.param = k;
      byNode.set(`p${k}`, item);
    });
  }

  // Where too many nodes stand in one box, those of a line of source are one.
  function foldLines(model, item) {
    for (const child of [...item.children]) foldLines(model, child);
    const nodes = item.children.filter(c => c.kind === "node");
    if (nodes.length <= (item.kind === "lane" ? MANY_LOOSE : MANY) || item.node && item.node.op === "fused") return;
    const lines = new Map();
    for (const child of nodes) {
      const o = model.origin(child.node);
      const name = o && o.file >= 0 ? `${model.data.files[o.file].name}:${o.line}` : "elsewhere";
      if (!lines.has(name)) lines.set(name, []);
      lines.get(name).push(child);
    }
    if (lines.size < 2 && item.children.length === nodes.length) return;
    item.children = item.children.filter(c => c.kind !== "node");
    for (const [name, those] of lines) {
      if (those.length === 1) { item.children.push(those[0]); continue; }
      const inner = adopt(item, box(`${item.key}/${name}`, sourceOf(model, those[0].node) || name, null, "line"));
      inner.says = name;
      for (const child of those) adopt(inner, child);
    }
  }

  function sourceOf(model, node) {
    const o = model.origin(node);
    const text = o && o.file >= 0 ? (model.data.files[o.file].lines[o.line - 1] || "").trim() : "";
    return text.length > 44 ? `${text.slice(0, 43)}…` : text;
  }

  function finish(model, graph, item) {
    item.depth = item.parent ? item.parent.depth + 1 : 0;
    item.lane = item.kind === "lane" ? item.key : item.parent ? item.parent.lane : "";
    item.count = item.kind === "node" && !item.ghost ? 1 : 0;
    item.origins = new Set(item.node && item.node.origin >= 0 ? [item.node.origin] : []);
    item.marks = { added: 0, changed: 0, moved: 0, removed: 0 };
    const mark = item.node && graph.marks.get(item.node.id);
    if (mark) item.marks[mark]++;
    for (const child of item.children) {
      finish(model, graph, child);
      item.count += child.count;
      for (const o of child.origins) item.origins.add(o);
      for (const name in item.marks) item.marks[name] += child.marks[name];
    }
    item.isGroup = item.children.length > 0;
  }

  const MOST_GHOSTS = 300;

  // What a pass removed, where it stood: drawn with the graph behind the pass.
  Tenon.ghosts = function (graph) {
    if (!graph.before) return [];
    return [...graph.gone].map(id => graph.before.nodes.get(id)).filter(n => n && !n.parent).slice(0, MOST_GHOSTS);
  };

  function addEdges(model, graph, byNode) {
    for (const node of [...graph.nodes.values(), ...Tenon.ghosts(graph)]) {
      const target = byNode.get(node.id);
      for (const x of node.inputs) {
        if (!Array.isArray(x)) continue;
        const [id, k] = x;
        const source = id >= 0 ? byNode.get(id) : node.parent ? null : byNode.get(`p${k}`);
        if (!source) continue;
        const from = id >= 0 ? graph.nodes.get(id) || graph.before.nodes.get(id) : null;
        const type = from ? from.types[k] : model.data.params[k].type;
        const bytes = from ? from.bytes[k] : model.data.params[k].bytes;
        addEdge(source, target, type, bytes);
      }
      if (target.ghost) {         // whoever read it reads something else now
        for (const id of graph.before.users.get(node.id)) if (graph.nodes.has(id)) addEdge(target, byNode.get(id), node.types[0], node.bytes[0]);
      }
      for (const id of node.after) if (byNode.has(id)) addEdge(byNode.get(id), target, "order", 0);
    }
  }

  function addEdge(source, target, type, bytes) {
    let a = source, b = target;
    while (a.depth > b.depth) a = a.parent;
    while (b.depth > a.depth) b = b.parent;
    while (a.parent !== b.parent) { a = a.parent; b = b.parent; }
    if (a === b) return;            // one stands inside of the other
    const key = `${a.key} ${b.key}`;
    const edge = a.parent.edges.get(key) || { a, b, count: 0, bytes: 0, types: new Set() };
    edge.count++;
    edge.bytes += bytes;
    edge.types.add(type);
    a.parent.edges.set(key, edge);
  }

  // The deepest box on the way to this one that is drawn.
  Tenon.shownFor = function (item, open) {
    const way = [];
    for (let at = item; at; at = at.parent) way.push(at);
    let shown = way.pop();
    while (way.length && open(shown)) shown = way.pop();
    return shown;
  };
})();
