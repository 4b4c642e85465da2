"use strict";
// Ways through the graph: from one node to another, and the one whose steps take longest.  Part of the page's App.

(function () {
  Tenon.Ways = {
    markPath(end) {
      const node = this.chosenNode();
      if (!node || this.chosenItem().ghost) return;
      if (end === "from") { this.from = node.id; this.refresh(); return this.announce(`path from n${node.id}`); }
      if (this.from === undefined) return this.announce("mark the beginning first: a");
      const way = this.shortest(this.from, node.id) || this.shortest(node.id, this.from);
      if (!way) return this.announce(`no path between n${this.from} and n${node.id}`);
      this.showWay(way);
    },

    showWay(way) {
      this.way = way;
      this.wayIds = new Set(way);
      this.selection = new Set(way.map(id => this.tree.graph.nodes.get(id).origin).filter(o => o >= 0));
      if (way.length < 60) for (const id of way) {
        for (let at = this.tree.byNode.get(id).parent; at && at.kind !== "root"; at = at.parent) this.toggled.set(Tenon.shared(at.key), true);
      }
      this.graph.relayout();
      this.refresh();
      if (way.length < 60) this.graph.fit();
      this.announce(`a path of ${way.length} nodes`);
    },

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
    },

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
    },
  };
})();
