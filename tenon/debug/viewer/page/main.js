"use strict";
// The page: what is chosen, opened and coloured, and who is told when that changes.

(function () {
  const SHOWN_AT_FIRST = 44;      // boxes, before nothing more is opened by itself
  const FAMILIES = ["phase", "time", "FLOPs", "bytes", "memory life"];
  const COSTS = { time: "seconds", FLOPs: "flops", bytes: "bytes", "memory life": "life" };

  class App {
    constructor(model) {
      this.model = model;
      this.pass = 0;
      this.selection = new Set();     // captured nodes, as places in `origins`
      this.chosen = null;             // the key of a box
      this.line = null;
      this.kernel = null;
      this.code = "loops";
      this.rows = "operator";
      this.tab = "node";
      this.colorBy = "phase";
      this.labels = true;
      this.toggled = new Map();       // boxes that were opened or closed by hand
      this.trees = new Map();
      this.ops = new Map(model.data.nodes.map(n => [n.origin, n.op]));
      this.tip = byId("tip");
      this.readColors();
      this.graph = new Tenon.GraphView(this, byId("canvas"));
      this.source = new Tenon.SourceView(this, byId("source"));
      this.outline = new Tenon.Outline(this, byId("outline"));
      this.controls();
      this.setPass(0);
      this.graph.start();
      if (model.data.fallbacks.length && !model.data.nodes.length) this.openTab("why");
    }

    // -------------------------------------------------------- passes and opened boxes

    setPass(k) {
      this.pass = Math.max(0, Math.min(this.model.last, k));
      if (!this.trees.has(this.pass)) {
        const tree = Tenon.buildTree(this.model, this.pass);
        this.name(tree);
        tree.opened = this.openedAtFirst(tree);
        this.trees.set(this.pass, tree);
      }
      this.tree = this.trees.get(this.pass);
      this.keys = null;
      const chosen = this.chosen && this.itemOf(this.chosen);
      if (this.chosen && !chosen) this.chosen = null;
      this.way = null;
      const slider = byId("pass");
      slider.value = String(this.pass);
      const { name } = this.model.passes[this.pass];
      slider.setAttribute("aria-valuetext", `${this.pass} of ${this.model.last}: ${name}`);
      byId("pass-name").textContent = `${this.pass}/${this.model.last} ${name}`;
      if (this.pass && this.tab !== "changes" && this.stepping) this.openTab("changes", false);
      const before = this.graph.moved;
      this.graph.relayout();
      if (!before) this.graph.fit();
      this.refresh();
      this.announce(`graph behind ${name}, ${this.tree.graph.nodes.size} nodes`);
    }

    // Kernels are called what they are called where they run.
    name(tree) {
      for (const [id, item] of tree.byNode) {
        const step = this.model.stepOfNode.get(id);
        if (step !== undefined && item.node.graphs.body) item.kernelName = this.model.data.steps[step].name;
        if (item.kind === "param") item.type = this.model.data.params[item.param].type;
      }
    }

    openedAtFirst({ root }) {
      const opened = new Set([root.key]);
      let queue = [...root.children], shown = queue.length;
      while (queue.length) {
        const item = queue.shift();
        if (!item.isGroup || item.kind === "node" && shown > 12) continue;
        if (item.kind !== "lane" && shown + item.children.length > SHOWN_AT_FIRST) continue;
        if (item.kind === "lane" && item.children.length > 3 * SHOWN_AT_FIRST) continue;
        opened.add(item.key);
        shown += item.children.length;
        queue.push(...item.children);
      }
      return opened;
    }

    isOpen(item) {
      if (!item.isGroup) return false;
      if (item.kind === "root") return true;
      const by = this.toggled.get(shared(item.key));
      return by === undefined ? this.tree.opened.has(item.key) : by;
    }

    // A module is opened forward and backward at once, so that both stand beside each other.
    toggle(item) {
      if (!item.isGroup) return this.selectItem(item);
      this.toggled.set(shared(item.key), !this.isOpen(item));
      this.graph.relayout();
      if (this.graph.moved) this.graph.reveal(item); else this.graph.fit();
      if (!byId("outline").hidden) this.outline.draw();
      this.announce(`${Tenon.titleOf(item)} ${this.isOpen(item) ? "opened" : "closed"}`);
    }

    openAll(open) {
      this.toggled.clear();
      (function visit(app, item) {
        if (item.isGroup && item.kind !== "root" && item.kind !== "lane") app.toggled.set(shared(item.key), open && item.kind !== "node");
        item.children.forEach(c => visit(app, c));
      })(this, this.tree.root);
      this.graph.relayout();
      this.graph.fit();
    }

    itemOf(key) {
      if (!this.keys) {
        this.keys = new Map();
        (function visit(keys, item) { keys.set(item.key, item); item.children.forEach(c => visit(keys, c)); })(this.keys, this.tree.root);
      }
      return this.keys.get(key);
    }

    chosenItem() { return this.chosen ? this.itemOf(this.chosen) || null : null; }
    chosenNode() { return this.chosenItem()?.node || null; }
    opOf(origin) { return this.ops.get(origin) || "?"; }

    // -------------------------------------------------------- choosing

    select(origins, { chosen = null, line = null, title = "" } = {}) {
      this.selection = origins || new Set();
      this.chosen = chosen;
      this.line = line;
      this.title = title;
      this.way = null;
      this.refresh();
    }

    selectItem(item) {
      if (item.kind === "root") return this.select(null);
      this.select(item.origins, { chosen: item.key, title: item.title });
      if (this.tab === "why" || this.tab === "changes" && !item.node) this.openTab("node");
      this.announce(this.tipLines(item).join(", "));
    }

    selectOrigins(origins, title) {
      this.select(origins, { title });
      this.showSome(origins);
    }

    selectLine(file, line) {
      const key = `${file}:${line}`;
      if (this.line === key) return this.select(null);
      const origins = this.model.originsOfLine(file, line);
      this.select(origins, { line: key, title: `${this.model.data.files[file].name}:${line}` });
      this.showSome(origins);
      this.announce(`line ${line}: ${origins.size} nodes, ${this.model.stepsOf(origins).size} steps`);
    }

    selectSteps(steps, title) {
      const origins = new Set(steps.flatMap(k => this.model.data.steps[k].origins.map(([o]) => o).filter(o => o >= 0)));
      const node = steps.length === 1 ? this.model.data.steps[steps[0]].node : -1;
      const chosen = this.tree.byNode.has(node) ? `n${node}` : null;
      this.select(origins, { chosen, title });
      if (chosen) this.reach(this.itemOf(chosen)); else this.showSome(origins);
    }

    // Where some of these nodes are drawn, if none is in sight.
    showSome(origins) {
      const items = this.graph.shown.filter(i => !this.isOpen(i) && this.isLit(i, origins));
      if (items.length && items.length < 400 && this.graph.moved) this.graph.reveal(items[0]);
    }

    goTo(id) {
      if (!this.tree.byNode.has(id) && this.tree.graph.before?.nodes.has(id)) this.setPass(this.pass - 1);
      const item = this.tree.byNode.get(id);
      if (!item) return;
      this.selectItem(item);
      this.reach(item);
    }

    // Open what hides a box, and bring it into sight.
    reach(item) {
      let changed = false;
      for (let at = item.parent; at && at.kind !== "root"; at = at.parent) {
        if (!this.isOpen(at)) { this.toggled.set(shared(at.key), true); changed = true; }
      }
      if (changed) this.graph.relayout();
      this.graph.reveal(item);
      if (!byId("outline").hidden) this.outline.draw();
    }

    isLit(item, origins = this.selection) {
      if (!origins.size && !this.way) return false;
      if (this.way) return item.node ? this.wayIds.has(item.node.id) : [...this.wayIds].some(id => within(this.tree.byNode.get(id), item));
      if (this.chosen === item.key) return true;
      if (item.origins.size < origins.size) { for (const o of item.origins) if (origins.has(o)) return true; return false; }
      for (const o of origins) if (item.origins.has(o)) return true;
      return false;
    }

    // -------------------------------------------------------- ways through the graph

    markPath(end) {
      const node = this.chosenNode();
      if (!node) return;
      if (end === "from") { this.from = node.id; this.refresh(); return this.announce(`path from n${node.id}`); }
      if (this.from === undefined) return this.announce("mark the beginning first: a");
      const way = this.shortest(this.from, node.id) || this.shortest(node.id, this.from);
      if (!way) return this.announce(`no path between n${this.from} and n${node.id}`);
      this.showWay(way);
    }

    showWay(way) {
      this.way = way;
      this.wayIds = new Set(way);
      this.selection = new Set(way.map(id => this.tree.graph.nodes.get(id).origin).filter(o => o >= 0));
      if (way.length < 60) for (const id of way) {
        for (let at = this.tree.byNode.get(id).parent; at && at.kind !== "root"; at = at.parent) this.toggled.set(shared(at.key), true);
      }
      this.graph.relayout();
      this.refresh();
      if (way.length < 60) this.graph.fit();
      this.announce(`a path of ${way.length} nodes`);
    }

    shortest(from, to) {
      const { users } = this.tree.graph, came = new Map([[from, null]]), queue = [from];
      for (let k = 0; k < queue.length; k++) {
        if (queue[k] === to) break;
        for (const next of users.get(queue[k]) || []) if (!came.has(next)) { came.set(next, queue[k]); queue.push(next); }
      }
      if (!came.has(to)) return null;
      const way = [];
      for (let at = to; at !== null; at = came.get(at)) way.unshift(at);
      return way;
    }

    // The way through the graph whose steps take longest: what no number of threads can shorten.
    showCritical() {
      if (this.pass !== this.model.last) this.setPass(this.model.last);
      const { nodes } = this.tree.graph, longest = new Map(), came = new Map();
      for (const node of nodes.values()) {
        if (node.parent) continue;
        let most = 0, from = null;
        for (const id of Tenon.sources(node)) if ((longest.get(id) || 0) > most) { most = longest.get(id); from = id; }
        const step = this.model.stepOfNode.get(node.id);
        longest.set(node.id, most + (step !== undefined ? this.model.data.steps[step].seconds || 1e-9 : 0));
        came.set(node.id, from);
      }
      const end = [...longest].reduce((a, b) => (b[1] > a[1] ? b : a), [null, -1]);
      if (end[0] === null) return;
      const way = [];
      for (let at = end[0]; at !== null; at = came.get(at)) way.unshift(at);
      this.chosen = null;
      this.showWay(way);
      this.title = `critical path, ${Tenon.say.seconds(end[1])}`;
      this.refresh();
    }

    // -------------------------------------------------------- colours

    readColors() {
      const style = getComputedStyle(document.documentElement);
      this.colors = Object.fromEntries(["text", "dim", "line", "edge", "group", "lane", "accent", "accent2", "forward", "backward",
        "update", "param", "box", "added", "changed", "moved", "removed"].map(n => [n, style.getPropertyValue(`--${n}`).trim()]));
      this.dark = style.getPropertyValue("--dark").trim() === "1";
    }

    fill(item) {
      if (item.kind === "param") return this.colors.param;
      if (this.colorBy === "phase") return this.colors[item.lane] || this.colors.box;
      const part = this.heat(item);
      return part === null ? this.colors.box : ramp(part, this.dark);
    }

    ink(item) {
      if (this.colorBy === "phase" || item.kind === "param") return this.colors.text;
      const part = this.heat(item);
      return part === null ? this.colors.dim : part > (this.dark ? 0.62 : 0.5) ? (this.dark ? "#111" : "#fff") : this.colors.text;
    }

    // 0 to 1, by orders of magnitude; null for what costs nothing.
    heat(item) {
      const what = COSTS[this.colorBy];
      const cost = this.costOf(item, what);
      if (!cost) return null;
      const most = this.most(what);
      return what === "life" ? Math.sqrt(cost / most) : Math.max(0, 1 + Math.log10(cost / most) / 3.5);
    }

    costOf(item, what) {
      return item.isGroup && !(item.node && this.model.stepOfNode.has(item.node.id)) ? this.model.sumCost(item.origins, what)
        : item.node ? this.model.nodeCost(item.node, what) : 0;
    }

    most(what) {
      this.tops ||= {};
      return this.tops[what] ||= Math.max(1e-12, this.model.sumCost(this.model.data.origins.keys(), what)) * (what === "life" ? 1 : 0.5);
    }

    markOf(item) {
      if (!this.pass) return item.node && this.model.data.values[item.node.id]?.bad ? "removed" : null;
      if (item.node && !item.isGroup || item.node) return this.tree.graph.marks.get(item.node.id) || null;
      if (this.isOpen(item)) return null;
      return ["added", "changed", "moved"].find(name => item.marks[name]) || null;
    }

    legend() {
      const element = byId("legend");
      if (this.colorBy !== "phase") {
        const what = COSTS[this.colorBy], steps = [0.1, 0.3, 0.5, 0.7, 0.9].map(p => ramp(p, this.dark));
        const bar = Tenon.make("i", { class: "ramp" });
        bar.style.background = `linear-gradient(90deg, ${steps.join(", ")})`;
        const most = this.most(what);
        element.replaceChildren(Tenon.say[what](what === "life" ? 0 : most / 10 ** 3.5), bar, `${Tenon.say[what](Math.round(most * 1e12) / 1e12)} ${this.colorBy}`);
        return;
      }
      const kinds = this.pass ? [["added", "added"], ["changed", "changed"], ["moved", "moved"]]
        : [["forward", "forward"], ["backward", "backward"], ["update", "update"]];
      element.replaceChildren(...kinds.flatMap(([color, words]) => {
        const dot = Tenon.make("i", { class: "dot" });
        dot.style.background = this.colors[color];
        return [dot, words];
      }));
    }

    // -------------------------------------------------------- words

    tipLines(item) {
      if (item.kind === "param") return [item.title, item.type, "an argument"];
      const costs = ["seconds", "flops", "bytes"].map(w => [w, this.costOf(item, w)]).filter(([, c]) => c).map(([w, c]) => Tenon.say[w](c));
      const lines = [Tenon.titleOf(item) + (item.node ? ` n${item.node.id}` : "")];
      if (item.node) lines.push(item.node.types.join(", "));
      else lines.push(`${item.count} nodes${item.says ? ` · ${item.says}` : ""}`);
      const origin = item.node && this.model.origin(item.node);
      if (origin && origin.path) lines.push(origin.path);
      if (origin && origin.file >= 0) lines.push(`${this.model.data.files[origin.file].name}:${origin.line}`);
      if (costs.length) lines.push(costs.join(" · "));
      if (item.node && !this.pass) lines.push(...this.valuesOf(item.node));
      const mark = this.pass && this.markOf(item);
      if (mark) lines.push(`${mark} by ${this.model.passes[this.pass].name}`);
      return lines;
    }

    // What a captured node computed, where that was asked for.
    valuesOf(node) {
      const found = this.model.data.values[node.id];
      return found ? [...found.outputs, ...(found.turns > 1 ? [`the last of ${found.turns} turns`] : [])] : [];
    }

    say(lines, event) {
      this.tip.hidden = !lines;
      if (!lines) return;
      this.tip.replaceChildren(...lines.map((line, k) => Tenon.make(k ? "div" : "strong", {}, line)));
      this.tip.style.transform = `translate(${Math.min(event.clientX + 14, innerWidth - this.tip.offsetWidth - 8)}px, ${Math.min(event.clientY + 14, innerHeight - this.tip.offsetHeight - 8)}px)`;
    }

    announce(words) { byId("live").textContent = words; }

    // -------------------------------------------------------- the rest of the page

    refresh() {
      this.tip.hidden = true;
      this.graph.draw();
      this.source.light();
      if (!byId("outline").hidden) this.outline.draw();
      PANELS[this.tab](this, byId("panel"));
      this.legend();
      byId("clear").hidden = !this.selection.size && !this.way;
    }

    openTab(name, draw = true) {
      this.tab = name;
      for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
        const on = tab.dataset.tab === name;
        tab.setAttribute("aria-selected", String(on));
        tab.tabIndex = on ? 0 : -1;
      }
      byId("panel").scrollTop = 0;
      byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
      if (draw) this.refresh();
    }

    controls() {
      const { data } = this.model;
      document.title = `${data.name} · Tenon`;
      byId("name").textContent = data.name;
      byId("pass").max = String(this.model.last);
      byId("pass").addEventListener("input", e => { this.stepping = true; this.setPass(Number(e.target.value)); this.stepping = false; });
      byId("color").replaceChildren(...FAMILIES.map(f => Tenon.make("option", { value: f }, f)));
      byId("color").addEventListener("change", e => { this.colorBy = e.target.value; this.refresh(); });
      for (const tab of document.querySelectorAll("#tabs [role=tab]")) tab.addEventListener("click", () => this.openTab(tab.dataset.tab));
      byId("tabs").addEventListener("keydown", e => roving(e, "#tabs [role=tab]"));
      for (const side of ["source", "outline"]) byId(`show-${side}`).addEventListener("click", () => this.showSide(side));
      const actions = { fit: () => this.graph.fit(), theme: () => this.theme(), clear: () => this.select(null), help: () => byId("keys").showModal(),
        "open-all": () => this.openAll(true), "close-all": () => this.openAll(false) };
      for (const [id, act] of Object.entries(actions)) byId(id).addEventListener("click", act);
      new Tenon.Search(this, byId("search"), byId("found"));
      for (const splitter of document.querySelectorAll(".splitter")) split(splitter, () => this.graph.draw());
      document.addEventListener("keydown", e => this.key(e));
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.readColors(); this.refresh(); });
    }

    showSide(side) {
      for (const name of ["source", "outline"]) {
        byId(name).hidden = name !== side;
        byId(`show-${name}`).setAttribute("aria-selected", String(name === side));
      }
      this.refresh();
    }

    theme() {
      document.documentElement.dataset.theme = this.dark ? "light" : "dark";
      this.readColors();
      this.refresh();
    }

    key(event) {
      if (byId("keys").open) return;
      if (event.target.matches("input[type=search], input[type=text], select") || event.metaKey || event.ctrlKey || event.altKey) return;
      const act = {
        "/": () => byId("search").focus(), "[": () => this.step(-1), "]": () => this.step(1), "0": () => this.graph.fit(),
        "+": () => this.graph.zoom(1.25), "=": () => this.graph.zoom(1.25), "-": () => this.graph.zoom(0.8),
        a: () => this.markPath("from"), b: () => this.markPath("to"), d: () => this.theme(), c: () => this.showCritical(),
        "?": () => byId("keys").showModal(), Escape: () => this.select(null),
        ...Object.fromEntries(Object.keys(PANELS).map((tab, k) => [String(k + 1), () => this.openTab(tab)])),
        ...(document.activeElement === byId("canvas") ? this.walk() : {}),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }

    step(by) { this.stepping = true; this.setPass(this.pass + by); this.stepping = false; }

    // With the graph in focus, arrows go along edges and between neighbours; Enter opens and closes.
    walk() {
      const item = this.chosenItem();
      const go = to => { if (to) { this.selectItem(to); this.graph.reveal(to); } };
      if (!item) return { ArrowDown: () => go(this.graph.shown.find(i => i.kind === "module" || i.kind === "node")) };
      const edges = [...(item.parent?.edges.values() || [])];
      const row = item.parent ? item.parent.children : [], k = row.indexOf(item);
      return {
        ArrowDown: () => go(edges.find(e => e.a === item)?.b), ArrowUp: () => go(edges.find(e => e.b === item)?.a),
        ArrowRight: () => go(row[k + 1]), ArrowLeft: () => go(row[k - 1]),
        Enter: () => this.toggle(item), Backspace: () => go(item.parent?.kind !== "root" ? item.parent : null),
      };
    }
  }

  const PANELS = { node: Tenon.nodePanel, kernels: Tenon.kernelPanel, changes: Tenon.changePanel, time: Tenon.timePanel,
    memory: Tenon.memoryPanel, why: Tenon.whyPanel };

  const byId = id => document.getElementById(id);

  // The same module forward and backward is opened together.
  const shared = key => key.replace(/^(forward|backward)\//, "");

  function within(item, group) {
    for (let at = item; at; at = at.parent) if (at === group) return true;
    return false;
  }

  // From pale to strong, as even as the eye sees it.
  function ramp(part, dark) {
    const p = Math.max(0, Math.min(1, part));
    return dark ? `hsl(${Math.round(262 - 222 * p)} ${45 + 35 * p}% ${24 + 40 * p}%)` : `hsl(${Math.round(48 - 48 * p)} ${88 - 8 * p}% ${91 - 48 * p}%)`;
  }

  function roving(event, tabs) {
    const list = [...document.querySelectorAll(tabs)], k = list.indexOf(event.target);
    const to = { ArrowRight: list[k + 1] || list[0], ArrowLeft: list[k - 1] || list[list.length - 1] }[event.key];
    if (k < 0 || !to) return;
    event.preventDefault();
    to.focus();
    to.click();
  }

  // Drag the line between two columns; arrows move it too.
  function split(element, then) {
    const name = element.dataset.column, root = document.documentElement;
    const set = px => { root.style.setProperty(`--${name}`, `${Math.max(160, Math.min(innerWidth * 0.6, px))}px`); then(); };
    const width = () => byId(name).getBoundingClientRect().width;
    const sign = name === "left" ? 1 : -1;
    element.addEventListener("pointerdown", e => {
      element.setPointerCapture(e.pointerId);
      const start = e.clientX, w = width();
      const move = m => set(w + sign * (m.clientX - start));
      element.addEventListener("pointermove", move);
      element.addEventListener("pointerup", () => element.removeEventListener("pointermove", move), { once: true });
    });
    element.addEventListener("keydown", e => {
      if (e.key === "ArrowLeft") set(width() - sign * 24);
      if (e.key === "ArrowRight") set(width() + sign * 24);
    });
  }

  Tenon.load().then(data => {
    const started = performance.now();
    window.tenon = new App(new Tenon.Model(data));
    window.tenon.opened = { drawn: performance.now() - started, ready: performance.now() };
    document.body.classList.add("ready");
  }).catch(error => {
    byId("name").textContent = `this page cannot be read: ${error.message}`;
    throw error;
  });
})();
