"use strict";
// The graph on a canvas: only what is opened and in sight is drawn, so its size does not matter.

const FINE = 7;         // pixels: what is lower has no text and no edges

Tenon.GraphView = class {
  constructor(app, canvas) {
    this.app = app;
    this.canvas = canvas;
    this.at = { x: 0, y: 0, k: 1 };         // screen = graph * k + (x, y)
    this.shown = [];
    this.hovered = null;
    new ResizeObserver(() => { if (!this.moved) this.fit(); else this.draw(); }).observe(canvas);
    canvas.addEventListener("wheel", e => this.wheel(e), { passive: false });
    canvas.addEventListener("pointerdown", e => this.down(e));
    canvas.addEventListener("pointermove", e => this.move(e));
    canvas.addEventListener("pointerup", e => this.up(e));
    canvas.addEventListener("pointerleave", () => { this.hovered = null; this.tip(null); this.draw(); });
    canvas.addEventListener("dblclick", e => { const item = this.hit(e); if (item) app.toggle(item); });
  }

  // ---------------------------------------------------------- where things are

  relayout() {
    this.shown = Tenon.layout(this.app.tree.root, item => this.app.isOpen(item));
    this.visible = new Set(this.shown);
    this.draw();
  }

  fit() {
    const { root } = this.app.tree;
    this.show({ ax: root.ax, ay: root.ay, w: root.w, h: root.h }, 1.1);
    this.moved = false;
  }

  // All of it, or as much of its beginning as can be read.
  start() {
    this.fit();
    if (this.at.k >= 0.55) return;
    const { root } = this.app.tree;
    this.at = { k: 0.7, x: Math.max(16, (this.canvas.clientWidth - root.w * 0.7) / 2), y: 48 };
    this.moved = true;
    this.draw();
  }

  // Bring a box into sight, as large as it may be.
  show(item, most = 1.2) {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    const k = Math.min(most, Math.max(0.001, Math.min((w - 48) / item.w, (h - 96) / item.h)));
    this.at = { k, x: (w - item.w * k) / 2 - item.ax * k, y: (h - 40 - item.h * k) / 2 + 16 - item.ay * k };
    this.moved = true;
    this.draw();
  }

  // Bring a box to the middle, unless it is in sight already.
  reveal(item) {
    item = Tenon.shownFor(item, x => this.app.isOpen(x));
    const { clientWidth: w, clientHeight: h } = this.canvas, { x, y, k } = this.at;
    const left = item.ax * k + x, top = item.ay * k + y;
    const readable = k > 0.35 || item.w * k > 200;
    if (readable && left >= 0 && top >= 40 && left + item.w * k <= w && top + item.h * k <= h - 30) return this.draw();
    const scale = Math.min(readable ? k : 0.9, Math.max(0.05, Math.min((w - 40) / item.w, (h - 100) / item.h)));
    this.at = { k: scale, x: w / 2 - (item.ax + item.w / 2) * scale, y: h / 2 - (item.ay + item.h / 2) * scale };
    this.moved = true;
    this.draw();
  }

  zoom(factor, cx = this.canvas.clientWidth / 2, cy = this.canvas.clientHeight / 2) {
    const k = Math.min(4, Math.max(0.001, this.at.k * factor)), by = k / this.at.k;
    this.at = { k, x: cx - (cx - this.at.x) * by, y: cy - (cy - this.at.y) * by };
    this.moved = true;
    this.draw();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left - this.at.x) / this.at.k, y: (event.clientY - box.top - this.at.y) / this.at.k };
  }

  hit(event) {
    const { x, y } = this.point(event);
    for (let k = this.shown.length - 1; k > 0; k--) {
      const item = this.shown[k];
      if (x >= item.ax && x <= item.ax + item.w && y >= item.ay && y <= item.ay + item.h) return item;
    }
    return null;
  }

  // ---------------------------------------------------------- the mouse

  wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || !event.shiftKey && Math.abs(event.deltaY) >= Math.abs(event.deltaX) && !event.altKey) {
      this.zoom(Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY);
    } else {
      this.at.x -= event.deltaX || event.deltaY;
      this.moved = true;
      this.draw();
    }
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.clientX, y: event.clientY, at: { ...this.at }, far: false };
  }

  move(event) {
    if (this.drag) {
      const dx = event.clientX - this.drag.x, dy = event.clientY - this.drag.y;
      this.drag.far ||= Math.hypot(dx, dy) > 4;
      if (!this.drag.far) return;
      this.at.x = this.drag.at.x + dx;
      this.at.y = this.drag.at.y + dy;
      this.moved = true;
      this.tip(null);
      return this.draw();
    }
    const item = this.hit(event);
    if (item !== this.hovered) { this.hovered = item; this.draw(); }
    this.tip(item, event);
  }

  up(event) {
    const far = this.drag?.far;
    this.drag = null;
    if (far) return;
    const item = this.hit(event);
    if (!item) return this.app.select(null);
    const { x, y } = this.point(event);
    const onHandle = item.isGroup && y <= item.ay + 24 && (x >= item.ax + item.w - 24 || this.app.isOpen(item) && x <= item.ax + 26);
    if (onHandle) this.app.toggle(item);
    else this.app.selectItem(item);
  }

  tip(item, event) {
    const tip = this.app.tip;
    if (!item || this.drag || item.kind === "root" || item.kind === "lane") { tip.hidden = true; return; }
    tip.replaceChildren(...this.app.tipLines(item).map((line, k) => Tenon.make(k ? "div" : "strong", {}, line)));
    tip.hidden = false;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const y = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8);
    tip.style.transform = `translate(${x}px, ${y}px)`;
  }

  // ---------------------------------------------------------- drawing

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(); });
  }

  paint() {
    const { canvas, at } = this, ratio = devicePixelRatio || 1;
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const g = this.g = canvas.getContext("2d");
    this.colors = this.app.colors;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    g.setTransform(ratio * at.k, 0, 0, ratio * at.k, ratio * at.x, ratio * at.y);
    this.sight = { left: -at.x / at.k, top: -at.y / at.k, right: (w - at.x) / at.k, bottom: (h - at.y) / at.k };
    this.dim = this.app.selection.size > 0;
    for (const item of this.shown) if (item.kind !== "root" && this.seen(item)) this.paintBox(item);
    for (const item of this.shown) if (item.kind !== "root" && this.app.isOpen(item) && this.seen(item)) this.paintEdges(item);
    this.paintSelected();
    if (this.shown.length < 2) this.paintNothing(w, h, ratio);
  }

  paintNothing(w, h, ratio) {
    const { g } = this;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = this.colors.dim;
    g.font = "13px system-ui, sans-serif";
    g.textAlign = "center";
    g.fillText(this.app.model.data.fallbacks.length ? "No graph was captured: the panel Why says why." : "The graph has no nodes.", w / 2, h / 2);
    g.textAlign = "left";
  }

  seen(item) {
    const s = this.sight;
    return item.ax <= s.right && item.ay <= s.bottom && item.ax + item.w >= s.left && item.ay + item.h >= s.top;
  }

  paintBox(item) {
    const { g, app, at } = this, c = this.colors, open = app.isOpen(item);
    const lit = this.dim && app.isLit(item), chosen = app.chosen === item.key;
    if (item.h * at.k < FINE && !lit && !chosen) {          // too small for more than a spot of colour
      g.globalAlpha = this.dim && !open ? 0.32 : 1;
      g.fillStyle = open ? c.group : app.markOf(item) ? c[app.markOf(item)] : app.fill(item);
      g.fillRect(item.ax, item.ay, item.w, item.h);
      return;
    }
    g.globalAlpha = this.dim && !lit && !open ? 0.32 : item.ghost ? 0.6 : 1;
    g.setLineDash(item.ghost ? [5, 4] : []);
    g.beginPath();
    g.roundRect(item.ax, item.ay, item.w, item.h, open ? 10 : item.kind === "param" ? 17 : 7);
    g.fillStyle = open ? (item.kind === "lane" ? c.lane : c.group) : app.fill(item);
    g.fill();
    const mark = app.markOf(item);
    g.lineWidth = (chosen ? 3 : lit && this.dim ? 2 : mark ? 2.5 : 1) / Math.max(0.5, Math.min(1, at.k));
    g.strokeStyle = chosen ? c.accent : lit && this.dim && !open ? c.accent : mark ? c[mark] : item === this.hovered ? c.text : c.line;
    if (item.isGroup && !open && at.k > 0.25) this.paintStack(item);
    g.stroke();
    g.setLineDash([]);
    if (at.k * 12 >= 4.5) this.paintText(item, open, app.ink(item));
    g.globalAlpha = 1;
  }

  // A second edge below a box that can be opened.
  paintStack(item) {
    const { g } = this;
    g.stroke();
    g.beginPath();
    g.moveTo(item.ax + 6, item.ay + item.h + 3);
    g.lineTo(item.ax + item.w - 6, item.ay + item.h + 3);
    g.stroke();
    g.beginPath();
    g.roundRect(item.ax, item.ay, item.w, item.h, 7);
  }

  paintText(item, open, ink) {
    const { g, at } = this, c = this.colors;
    g.textBaseline = "middle";
    g.fillStyle = open ? c.dim : ink;
    g.font = `600 12px system-ui, sans-serif`;
    if (open) {
      g.fillText(`▾ ${Tenon.titleOf(item)}`, item.ax + 12, item.ay + 16, item.w - 24);
      const words = Tenon.subtitleOf(item);
      const used = g.measureText(`▾ ${Tenon.titleOf(item)}`).width;
      g.font = "11px system-ui, sans-serif";
      if (item.w - used - 30 > g.measureText(words).width) g.fillText(words, item.ax + 22 + used, item.ay + 16);
      return;
    }
    const small = at.k * 10.5 >= 5;
    g.fillText(Tenon.titleOf(item), item.ax + 11, item.ay + (small ? 14 : item.h / 2), item.w - (item.isGroup ? 34 : 20));
    if (item.isGroup) g.fillText("▸", item.ax + item.w - 18, item.ay + 14);
    if (!small) return;
    g.globalAlpha *= 0.75;
    g.font = item.isGroup ? "11px system-ui, sans-serif" : "10.5px ui-monospace, monospace";
    g.fillText(Tenon.subtitleOf(item), item.ax + 11, item.ay + (item.kind === "param" ? 25 : 28), item.w - 20);
  }

  paintEdges(item) {
    const { g, at } = this, c = this.colors;
    const ox = item.ax + item.content.x, oy = item.ay + item.content.y;
    g.lineWidth = 1.1 / Math.max(0.6, Math.min(1, at.k));
    const fine = at.k < 0.12 && !this.dim;
    for (const edge of item.edges.values()) {
      const { a, b } = edge;
      if (fine && Math.abs(a.ay - b.ay) * at.k < 2 * FINE) continue;
      if (!this.seen({ ax: Math.min(a.ax, b.ax), ay: Math.min(a.ay, b.ay), w: Math.abs(a.ax - b.ax) + Math.max(a.w, b.w),
        h: Math.abs(a.ay - b.ay) + Math.max(a.h, b.h) })) continue;
      const lit = this.dim && this.app.isLit(a) && this.app.isLit(b);
      g.globalAlpha = this.dim && !lit ? 0.25 : 1;
      g.strokeStyle = g.fillStyle = lit ? c.accent : c.edge;
      if (edge.types.size === 1 && edge.types.has("order")) g.setLineDash([4, 4]);
      const points = edge.points?.length > 1 ? edge.points.map(p => ({ x: p.x + ox, y: p.y + oy })) : this.straight(a, b);
      this.curve(points);
      g.setLineDash([]);
      if (at.k > 0.75 && item.edges.size < 160) this.paintLabel(edge, points);
    }
    g.globalAlpha = 1;
  }

  straight(a, b) {
    const down = a.ay <= b.ay;
    return [{ x: a.ax + a.w / 2, y: down ? a.ay + a.h : a.ay }, { x: b.ax + b.w / 2, y: down ? b.ay : b.ay + b.h }];
  }

  curve(points, arrow = true) {
    const { g, at } = this;
    g.beginPath();
    g.moveTo(points[0].x, points[0].y);
    if (points.length === 2) {
      const [p, q] = points, middle = (p.y + q.y) / 2;
      g.bezierCurveTo(p.x, middle, q.x, middle, q.x, q.y);
    } else {
      for (let k = 1; k < points.length - 1; k++) {
        const p = points[k], q = points[k + 1];
        g.quadraticCurveTo(p.x, p.y, k === points.length - 2 ? q.x : (p.x + q.x) / 2, k === points.length - 2 ? q.y : (p.y + q.y) / 2);
      }
    }
    g.stroke();
    if (!arrow || at.k < 0.3) return;
    const q = points[points.length - 1], p = points[points.length - 2];
    const turn = points.length === 2 ? Math.sign(q.y - p.y) * Math.PI / 2 : Math.atan2(q.y - p.y, q.x - p.x);
    g.beginPath();
    g.moveTo(q.x, q.y);
    g.lineTo(q.x - 7 * Math.cos(turn - 0.42), q.y - 7 * Math.sin(turn - 0.42));
    g.lineTo(q.x - 7 * Math.cos(turn + 0.42), q.y - 7 * Math.sin(turn + 0.42));
    g.fill();
  }

  paintLabel(edge, points) {
    const { g } = this, c = this.colors;
    if (edge.types.has("order") || !this.app.labels) return;
    const types = [...edge.types];
    const words = edge.count > 1 ? `${edge.count} · ${Tenon.say.bytes(edge.bytes)}` : `${types[0]} ${Tenon.say.bytes(edge.bytes)}`;
    const p = points[Math.floor((points.length - 1) / 2)], q = points[Math.ceil((points.length - 1) / 2)];
    g.font = "9.5px ui-monospace, monospace";
    g.textBaseline = "middle";
    const w = g.measureText(words).width, x = (p.x + q.x) / 2, y = (p.y + q.y) / 2;
    const alpha = g.globalAlpha;
    g.globalAlpha = alpha * 0.85;
    g.fillStyle = c.group;
    g.fillRect(x - w / 2 - 2, y - 6, w + 4, 12);
    g.globalAlpha = alpha;
    g.fillStyle = c.dim;
    g.fillText(words, x - w / 2, y);
  }

  // What the chosen node reads and who reads it, also in other lanes and boxes.
  paintSelected() {
    const { g, app, at } = this, node = app.chosenNode();
    const pairs = app.way ? app.way.slice(1).map((id, k) => [app.way[k], id]) : [];
    if (node && !app.way) {
      for (const id of Tenon.sources(node)) pairs.push([id, node.id]);
      for (const id of app.tree.graph.users.get(node.id) || []) pairs.push([node.id, id]);
    }
    g.lineWidth = 1.8 / Math.max(0.4, Math.min(1, at.k));
    const drawn = new Set();
    for (const [from, to] of pairs) {
      const a = this.shownNode(from), b = this.shownNode(to);
      if (!a || !b || a === b || drawn.has(`${a.key} ${b.key}`)) continue;
      drawn.add(`${a.key} ${b.key}`);
      g.strokeStyle = g.fillStyle = app.way || to === node.id ? this.colors.accent : this.colors.accent2;
      this.curve(this.beside(a, b));
    }
  }

  beside(a, b) {
    if (a.lane === b.lane) return this.straight(a, b);
    const right = a.ax < b.ax;
    const p = { x: right ? a.ax + a.w : a.ax, y: a.ay + a.h / 2 }, q = { x: right ? b.ax : b.ax + b.w, y: b.ay + b.h / 2 };
    const bend = (q.x - p.x) / 3;
    return [p, { x: p.x + bend, y: p.y }, { x: q.x - bend, y: q.y }, q];
  }

  shownNode(id) {
    const item = this.app.tree.byNode.get(id);
    return item ? Tenon.shownFor(item, x => this.app.isOpen(x)) : null;
  }
};
