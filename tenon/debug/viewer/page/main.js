"use strict";
// The page: what is chosen, opened and coloured, and who is told when that changes.

(function () {
  const SHOWN_AT_FIRST = 44;      // boxes, before nothing more is opened by itself

  class App {
    constructor(model) {
      this.model = model;
      this.pass = 0;
      this.selection = new Set();     // captured nodes, as places in `origins`
      this.chosen = null;             // the key of a box
      this.line = null;
      this.loopLine = null;           // { kernel, line } of its loops
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

    select(origins, { chosen = null, line = null, loopLine = null, title = "" } = {}) {
      this.selection = origins || new Set();
      this.chosen = chosen;
      this.line = line;
      this.loopLine = loopLine;
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

    // A line of a kernel's loops, with what LLVM and the machine make of it.
    selectLoopLine(kernel, line) {
      const { loopLine } = this, same = loopLine && loopLine.kernel === kernel && loopLine.line === line;
      this.kernel = kernel;
      if (same) return this.select(null);
      const origins = this.model.originsOfLoopLine(kernel, line);
      this.select(origins, { loopLine: { kernel, line }, title: `line ${line} of ${this.model.data.kernels[kernel].name}` });
      this.showSome(origins);
      this.announce(`line ${line} of the loops: ${origins.size} nodes`);
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
  }

  const PANELS = { node: Tenon.nodePanel, kernels: Tenon.kernelPanel, changes: Tenon.changePanel, time: Tenon.timePanel,
    memory: Tenon.memoryPanel, why: Tenon.whyPanel };
  Tenon.TABS = Object.keys(PANELS);
  Object.assign(App.prototype, Tenon.Ways, Tenon.Colours, Tenon.Words, Tenon.Controls);

  const byId = id => document.getElementById(id);

  // The same module forward and backward is opened together.
  const shared = Tenon.shared = key => key.replace(/^(forward|backward)\//, "");

  function within(item, group) {
    for (let at = item; at; at = at.parent) if (at === group) return true;
    return false;
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
