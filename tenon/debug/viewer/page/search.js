"use strict";
// What is typed above -> nodes, modules and kernels whose words all fit.

Tenon.Search = class {
  constructor(app, input, list) {
    Object.assign(this, { app, input, list, at: 0, hits: [] });
    input.addEventListener("input", () => this.look());
    input.addEventListener("keydown", e => this.key(e));
    input.addEventListener("blur", () => setTimeout(() => { list.hidden = true; }, 150));
    input.addEventListener("focus", () => { if (input.value) this.look(); });
  }

  look() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.hits = words.length ? [...this.candidates()].filter(c => words.every(w => c.text.includes(w))).slice(0, 40) : [];
    this.at = 0;
    this.draw();
    this.app.announce(words.length ? `${this.hits.length} found` : "");
  }

  *candidates() {
    const { app } = this, { model, tree } = app;
    const groups = [...tree.root.children];
    for (let k = 0; k < groups.length; k++) {
      const item = groups[k];
      if (item.kind === "module" || item.kind === "lane") {
        yield { text: item.key.replaceAll("/", ".").toLowerCase(), title: item.key.replaceAll("/", "."), small: `${item.count} nodes`, go: () => { app.selectItem(item); app.reach(item); } };
        groups.push(...item.children);
      }
    }
    for (const node of tree.graph.nodes.values()) {
      const o = model.origin(node);
      yield { text: `n${node.id} ${node.op} ${node.types.join(" ")} ${o ? `${o.path} ${o.phase} line ${o.line}` : ""} ${Object.values(node.attrs).join(" ")}`.toLowerCase(),
        title: `n${node.id} ${node.op}`, small: `${node.types[0] || ""} ${o && o.path ? "· " + o.path : ""}`, go: () => app.goTo(node.id) };
    }
    for (const [k, kernel] of model.data.kernels.entries()) {
      yield { text: `kernel ${kernel.name}`.toLowerCase(), title: kernel.name, small: "kernel",
        go: () => { app.kernel = k; app.selectSteps(model.callsOfKernel[k], kernel.name); app.openTab("kernels"); } };
    }
  }

  draw() {
    this.list.hidden = !this.hits.length;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.list.replaceChildren(...this.hits.map((hit, k) => Tenon.make("li", { role: "option", id: `hit-${k}`, "aria-selected": String(k === this.at),
      onpointerdown: e => { e.preventDefault(); this.take(hit); } }, hit.title, Tenon.make("small", {}, ` ${hit.small}`))));
    this.input.setAttribute("aria-activedescendant", this.hits.length ? `hit-${this.at}` : "");
    this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    if (event.key === "ArrowDown") this.at = Math.min(this.hits.length - 1, this.at + 1);
    else if (event.key === "ArrowUp") this.at = Math.max(0, this.at - 1);
    else if (event.key === "Enter" && this.hits[this.at]) return this.take(this.hits[this.at]);
    else if (event.key === "Escape") { this.input.value = ""; this.hits = []; this.input.blur(); }
    else return;
    event.preventDefault();
    this.draw();
  }

  take(hit) {
    this.list.hidden = true;
    hit.go();
  }
};
