"use strict";
// Buttons, tabs, keys and the lines between columns.  Part of the page's App.

(function () {
  const FAMILIES = ["phase", "time", "FLOPs", "bytes", "memory life"];
  const byId = id => document.getElementById(id);

  Tenon.Controls = {
    controls() {
      const { data } = this.model;
      document.title = `${data.name} · Tenon`;
      byId("name").textContent = data.name;
      byId("pass").max = String(this.model.last);
      byId("pass").addEventListener("input", e => { this.stepping = true; this.setPass(Number(e.target.value)); this.stepping = false; });
      const families = data.devices.names.length > 1 ? [...FAMILIES, "device"] : FAMILIES;
      byId("color").replaceChildren(...families.map(f => Tenon.make("option", { value: f }, f)));
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
    },

    showSide(side) {
      for (const name of ["source", "outline"]) {
        byId(name).hidden = name !== side;
        byId(`show-${name}`).setAttribute("aria-selected", String(name === side));
      }
      this.refresh();
    },

    theme() {
      document.documentElement.dataset.theme = this.dark ? "light" : "dark";
      this.readColors();
      this.refresh();
    },

    key(event) {
      if (byId("keys").open) return;
      if (event.target.matches("input[type=search], input[type=text], select") || event.metaKey || event.ctrlKey || event.altKey) return;
      const act = {
        "/": () => byId("search").focus(), "[": () => this.step(-1), "]": () => this.step(1), "0": () => this.graph.fit(),
        "+": () => this.graph.zoom(1.25), "=": () => this.graph.zoom(1.25), "-": () => this.graph.zoom(0.8),
        a: () => this.markPath("from"), b: () => this.markPath("to"), d: () => this.theme(), c: () => this.showCritical(),
        "?": () => byId("keys").showModal(), Escape: () => this.select(null),
        ...Object.fromEntries(Tenon.TABS.map((tab, k) => [String(k + 1), () => this.openTab(tab)])),
        ...(document.activeElement === byId("canvas") ? this.walk() : {}),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    },

    step(by) { this.stepping = true; this.setPass(this.pass + by); this.stepping = false; },

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
    },
  };

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
})();
