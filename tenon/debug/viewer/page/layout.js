"use strict";
// A tree of boxes -> where each open box lies.  Small boxes by dagre, large ones in plain layers, loose parts in rows.

(function () {
  const PAD = 14, HEADER = 26, GAP = 22, MOST_FOR_DAGRE = 60;
  const LEAF = { height: 40, least: 76, most: 230 };
  const measure = document.createElement("canvas").getContext("2d");

  Tenon.layout = function (root, open) {
    arrange(root, open, "TB");
    locate(root, 0, 0);
    const shown = [];
    (function visit(item) {
      shown.push(item);
      if (open(item)) item.children.forEach(visit);
    })(root);
    return shown;
  };

  function arrange(item, open, direction) {
    if (item.kind === "lane") direction = item.key === "backward" ? "BT" : "TB";
    if (!open(item)) return sizeOf(item);
    const state = direction + item.children.map(c => stateOf(c, open)).join();
    if (item.laidOut === state) return;
    item.children.forEach(child => arrange(child, open, direction));
    const size = item.kind === "root" ? inARow(item.children) : inLayers(item, direction);
    const top = item.kind === "root" ? 0 : HEADER;
    item.content = { x: PAD, y: top + PAD };
    item.w = Math.max(size.w + 2 * PAD, titleWidth(item) + 40);
    item.h = size.h + 2 * PAD + top;
    item.laidOut = state;
  }

  // What of the open boxes inside decides about sizes.
  function stateOf(item, open) {
    return open(item) ? `${item.key}(${item.children.map(c => stateOf(c, open)).join()})` : "";
  }

  function sizeOf(item) {
    measure.font = "600 12px system-ui, sans-serif";
    const title = measure.measureText(Tenon.titleOf(item)).width;
    measure.font = "10.5px ui-monospace, monospace";
    const below = measure.measureText(Tenon.subtitleOf(item)).width;
    item.w = Math.min(LEAF.most, Math.max(LEAF.least, Math.max(title + (item.isGroup ? 18 : 0), below) + 22));
    item.h = item.kind === "param" ? 34 : LEAF.height;
    item.laidOut = null;
  }

  function titleWidth(item) {
    measure.font = "600 12px system-ui, sans-serif";
    return measure.measureText(Tenon.titleOf(item)).width;
  }

  Tenon.titleOf = item => item.kind === "node" && item.node.graphs.body && item.node.op === "fused"
    ? item.kernelName || "kernel" : item.title;

  Tenon.subtitleOf = item => {
    if (item.kind === "param") return item.type || "";
    if (item.isGroup) return `${item.says && item.says !== item.title ? item.says + " · " : ""}${item.count} node${item.count === 1 ? "" : "s"}`;
    const type = item.node ? item.node.types.join(", ") : "";
    return type.length > 34 ? type.slice(0, 33) + "…" : type;
  };

  function inARow(items) {
    let x = 0, h = 0;
    for (const item of items) {
      item.x = x; item.y = 0;
      x += item.w + 3 * GAP;
      h = Math.max(h, item.h);
    }
    return { w: Math.max(0, x - 3 * GAP), h };
  }

  function inLayers(item, direction) {
    const parts = components(item);
    const sizes = parts.map(part => part.items.length === 1 ? single(part)
      : part.items.length > MOST_FOR_DAGRE ? plainLayers(part, direction) : narrow(part, direction));
    return packed(parts, sizes);
  }

  // Boxes that edges join, largest part first where there are several.
  function components(item) {
    const of = new Map(item.children.map(c => [c, c]));
    const find = c => { while (of.get(c) !== c) { of.set(c, of.get(of.get(c))); c = of.get(c); } return c; };
    const edges = [...item.edges.values()];
    for (const { a, b } of edges) of.set(find(a), find(b));
    const parts = new Map();
    for (const child of item.children) {
      const top = find(child);
      if (!parts.has(top)) parts.set(top, { items: [], edges: [] });
      parts.get(top).items.push(child);
    }
    for (const edge of edges) parts.get(find(edge.a)).edges.push(edge);
    return [...parts.values()];
  }

  function single(part) {
    const [item] = part.items;
    item.x = item.y = 0;
    return { w: item.w, h: item.h };
  }

  // By dagre, unless many boxes would stand in one long row.
  function narrow(part, direction) {
    const size = byDagre(part, direction);
    return size.w > 1500 && size.w > 2.4 * size.h && part.items.length > 8 ? plainLayers(part, direction) : size;
  }

  // Equal layers of a network are drawn alike: what dagre said of one holds for all.
  const known = new Map();

  function byDagre(part, direction) {
    const place = new Map(part.items.map((item, k) => [item, k]));
    const form = `${direction} ${part.items.map(i => `${i.w.toFixed(1)}x${i.h.toFixed(1)}`).join()} ${part.edges.map(e => `${place.get(e.a)}-${place.get(e.b)}`).join()}`;
    if (!known.has(form)) {
      const size = laidByDagre(part, direction);
      known.set(form, { size, items: part.items.map(i => [i.x, i.y]), points: part.edges.map(e => e.points.map(p => ({ ...p }))) });
    }
    const found = known.get(form);
    part.items.forEach((item, k) => { [item.x, item.y] = found.items[k]; });
    part.edges.forEach((edge, k) => { edge.points = found.points[k].map(p => ({ ...p })); });
    return found.size;
  }

  function laidByDagre(part, direction) {
    const g = new dagre.graphlib.Graph();
    g.setGraph({ rankdir: direction, nodesep: GAP - 4, ranksep: GAP + 8, edgesep: 8 });
    g.setDefaultEdgeLabel(() => ({}));
    for (const item of part.items) g.setNode(item.key, { width: item.w, height: item.h });
    for (const edge of part.edges) g.setEdge(edge.a.key, edge.b.key, { weight: edge.count });
    dagre.layout(g);
    let left = Infinity, top = Infinity, right = 0, bottom = 0;
    for (const item of part.items) {
      const at = g.node(item.key);
      item.x = at.x - item.w / 2;
      item.y = at.y - item.h / 2;
    }
    for (const edge of part.edges) edge.points = g.edge(edge.a.key, edge.b.key).points.map(p => ({ x: p.x, y: p.y }));
    for (const item of part.items) {
      left = Math.min(left, item.x); top = Math.min(top, item.y);
      right = Math.max(right, item.x + item.w); bottom = Math.max(bottom, item.y + item.h);
    }
    for (const edge of part.edges) for (const p of edge.points) { left = Math.min(left, p.x); right = Math.max(right, p.x); }
    shift(part, -left, -top);
    return { w: right - left, h: bottom - top };
  }

  function shift(part, dx, dy) {
    for (const item of part.items) { item.x += dx; item.y += dy; }
    for (const edge of part.edges) for (const p of edge.points || []) { p.x += dx; p.y += dy; }
  }

  // Longest way from the inputs as the layer, sorted by where neighbours stand: for boxes that dagre takes long for.
  function plainLayers(part, direction) {
    const inputs = new Map(part.items.map(i => [i, []])), outputs = new Map(part.items.map(i => [i, []]));
    for (const { a, b } of part.edges) { inputs.get(b).push(a); outputs.get(a).push(b); }
    const waiting = new Map(part.items.map(i => [i, inputs.get(i).length]));
    const layer = new Map(), ready = part.items.filter(i => !waiting.get(i));
    const left = new Set(part.items);
    while (left.size) {
      const item = ready.shift() || left.values().next().value;         // a cycle of boxes is cut where it is met
      if (!left.delete(item)) continue;
      layer.set(item, Math.max(0, ...inputs.get(item).map(i => (layer.has(i) ? layer.get(i) + 1 : 0))));
      for (const next of outputs.get(item)) {
        waiting.set(next, waiting.get(next) - 1);
        if (!waiting.get(next)) ready.push(next);
      }
    }
    const layers = [];
    for (const item of part.items) (layers[layer.get(item)] ||= []).push(item);
    const area = part.items.reduce((sum, i) => sum + (i.w + GAP) * (i.h + 2 * GAP), 0);
    const rows = layers.filter(Boolean).flatMap(row => broken(row, Math.max(600, Math.sqrt(area) * 1.4)));
    const width = Math.max(...rows.map(rowWidth));
    for (let sweep = 0; sweep < 3; sweep++) for (const row of rows) {
      const want = new Map(row.map(i => [i, mean(inputs.get(i).filter(x => x.cx !== undefined).map(x => x.cx))]));
      row.sort((a, b) => want.get(a) - want.get(b));
      let x = (width - rowWidth(row)) / 2;
      for (const item of row) { item.x = x; item.cx = x + item.w / 2; x += item.w + GAP; }
    }
    let y = 0;
    for (const row of direction === "BT" ? rows.reverse() : rows) {
      for (const item of row) item.y = y;
      y += Math.max(...row.map(i => i.h)) + GAP + 8;
    }
    for (const edge of part.edges) edge.points = null;
    return { w: width, h: y - GAP - 8 };
  }

  // A layer in rows of about this width.
  function broken(layer, most) {
    const rows = [[]];
    let w = 0;
    for (const item of layer) {
      if (w && w + item.w > most) { rows.push([]); w = 0; }
      rows[rows.length - 1].push(item);
      w += item.w + GAP;
    }
    return rows;
  }

  const rowWidth = row => row.reduce((sum, i) => sum + i.w + GAP, -GAP);
  const mean = list => list.length ? list.reduce((a, b) => a + b, 0) / list.length : 0;

  // Parts that no edge joins, in rows about as wide as all are high.
  function packed(parts, sizes) {
    const area = sizes.reduce((sum, s) => sum + (s.w + GAP) * (s.h + GAP), 0);
    const most = Math.max(Math.sqrt(area) * 1.25, ...sizes.map(s => s.w));
    let x = 0, y = 0, row = 0, w = 0;
    parts.forEach((part, k) => {
      if (x && x + sizes[k].w > most) { x = 0; y += row + GAP; row = 0; }
      shift(part, x, y);
      x += sizes[k].w + GAP;
      w = Math.max(w, x - GAP);
      row = Math.max(row, sizes[k].h);
    });
    return { w, h: y + row };
  }

  function locate(item, x, y) {
    item.ax = x; item.ay = y;
    if (!item.laidOut) return;
    for (const child of item.children) locate(child, x + item.content.x + child.x, y + item.content.y + child.y);
  }
})();
