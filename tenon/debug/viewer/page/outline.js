"use strict";
// The boxes of the graph as a tree of words: for the keyboard, and for those who listen to the page.

Tenon.Outline = class {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    element.setAttribute("role", "tree");
    element.setAttribute("aria-label", "modules and nodes");
    element.addEventListener("keydown", e => this.key(e));
  }

  draw() {
    const { app } = this, rows = [];
    (function visit(item, level) {
      if (rows.length > 3000) return;
      if (item.kind !== "root") rows.push([item, level]);
      if (item.kind === "root" || app.isOpen(item)) item.children.forEach(c => visit(c, level + 1));
    })(app.tree.root, 0);
    this.element.replaceChildren(...rows.map(([item, level]) => this.row(item, level)));
    const chosen = this.element.querySelector("[aria-selected=true]") || this.element.firstElementChild;
    if (chosen) chosen.tabIndex = 0;
    chosen?.scrollIntoView({ block: "nearest" });
  }

  row(item, level) {
    const { app } = this, open = app.isOpen(item);
    const cost = Tenon.say.seconds(app.model.sumCost(item.origins, "seconds"));
    const row = Tenon.make("div", { role: "treeitem", class: `item ${app.isLit(item) && app.selection.size ? "lit" : ""}`, tabindex: "-1",
      "aria-level": String(level), "aria-selected": String(app.chosen === item.key), "aria-expanded": item.isGroup ? String(open) : null,
      "data-key": item.key, onclick: () => app.selectItem(item) },
    Tenon.make("span", { class: "fold", onclick: e => { e.stopPropagation(); app.toggle(item); } }, item.isGroup ? (open ? "▾" : "▸") : ""),
    Tenon.titleOf(item), Tenon.make("small", {}, ` ${item.isGroup ? `${item.count} nodes` : item.node ? item.node.types[0] || "" : ""}${cost !== "0" ? ` · ${cost}` : ""}`));
    row.style.paddingLeft = `${level * 12}px`;
    return row;
  }

  key(event) {
    const row = event.target.closest("[role=treeitem]");
    if (!row) return;
    const item = this.app.itemOf(row.dataset.key);
    const moves = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling };
    if (event.key in moves) moves[event.key]?.focus();
    else if (event.key === "ArrowRight" && item.isGroup && !this.app.isOpen(item)) this.refocus(() => this.app.toggle(item), item.key);
    else if (event.key === "ArrowLeft" && item.isGroup && this.app.isOpen(item)) this.refocus(() => this.app.toggle(item), item.key);
    else if (event.key === "Enter" || event.key === " ") this.refocus(() => this.app.selectItem(item), item.key);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  refocus(change, key) {
    change();
    this.draw();
    this.element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  }
};
