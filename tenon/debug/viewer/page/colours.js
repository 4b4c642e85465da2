"use strict";
// What a box is coloured by, and what its colour says.  Part of the page's App.

(function () {
  const COSTS = { time: "seconds", FLOPs: "flops", bytes: "bytes", "memory life": "life" };
  const byId = id => document.getElementById(id);

  Tenon.Colours = {
    readColors() {
      const style = getComputedStyle(document.documentElement);
      this.colors = Object.fromEntries(["text", "dim", "line", "edge", "group", "lane", "accent", "accent2", "forward", "backward",
        "update", "param", "box", "added", "changed", "moved", "removed"].map(n => [n, style.getPropertyValue(`--${n}`).trim()]));
      this.dark = style.getPropertyValue("--dark").trim() === "1";
    },

    fill(item) {
      if (item.kind === "param") return this.colors.param;
      if (this.colorBy === "phase") return this.colors[item.lane] || this.colors.box;
      if (this.colorBy === "device") return this.deviceOf(item) < 0 ? this.colors.box : hue(this.deviceOf(item), this.dark);
      const part = this.heat(item);
      return part === null ? this.colors.box : ramp(part, this.dark);
    },

    ink(item) {
      if (this.colorBy === "phase" || this.colorBy === "device" || item.kind === "param") return this.colors.text;
      const part = this.heat(item);
      return part === null ? this.colors.dim : part > (this.dark ? 0.62 : 0.5) ? (this.dark ? "#111" : "#fff") : this.colors.text;
    },

    // The device of a node, or the one that all nodes of a group have; -1 where there are several, or none is known.
    deviceOf(item) {
      const found = new Set([...item.origins].map(o => this.model.data.devices.of[o] ?? -1));
      return found.size === 1 ? [...found][0] : -1;
    },

    // 0 to 1, by orders of magnitude; null for what costs nothing.
    heat(item) {
      const what = COSTS[this.colorBy];
      const cost = this.costOf(item, what);
      if (!cost) return null;
      const most = this.most(what);
      return what === "life" ? Math.sqrt(cost / most) : Math.max(0, 1 + Math.log10(cost / most) / 3.5);
    },

    costOf(item, what) {
      return item.isGroup && !(item.node && this.model.stepOfNode.has(item.node.id)) ? this.model.sumCost(item.origins, what)
        : item.node ? this.model.nodeCost(item.node, what) : 0;
    },

    most(what) {
      this.tops ||= {};
      return this.tops[what] ||= Math.max(1e-12, this.model.sumCost(this.model.data.origins.keys(), what)) * (what === "life" ? 1 : 0.5);
    },

    markOf(item) {
      if (!this.pass) return item.node && this.model.data.values[item.node.id]?.bad ? "removed" : null;
      if (item.node && !item.isGroup || item.node) return this.tree.graph.marks.get(item.node.id) || null;
      if (this.isOpen(item)) return null;
      return ["added", "changed", "moved", "removed"].find(name => item.marks[name]) || null;
    },

    legend() {
      const element = byId("legend");
      const dots = kinds => element.replaceChildren(...kinds.flatMap(([color, words]) => {
        const dot = Tenon.make("i", { class: "dot" });
        dot.style.background = color;
        return [dot, words];
      }));
      if (this.colorBy === "device") {
        dots(this.model.data.devices.names.map((name, k) => [hue(k, this.dark), name]));
        return;
      }
      if (this.colorBy !== "phase") {
        const what = COSTS[this.colorBy], steps = [0.1, 0.3, 0.5, 0.7, 0.9].map(p => ramp(p, this.dark));
        const bar = Tenon.make("i", { class: "ramp" });
        bar.style.background = `linear-gradient(90deg, ${steps.join(", ")})`;
        const most = this.most(what);
        element.replaceChildren(Tenon.say[what](what === "life" ? 0 : most / 10 ** 3.5), bar, `${Tenon.say[what](Math.round(most * 1e12) / 1e12)} ${this.colorBy}`);
        return;
      }
      const kinds = this.pass ? [["added", "added"], ["changed", "changed"], ["moved", "moved"], ["removed", "removed"]]
        : [["forward", "forward"], ["backward", "backward"], ["update", "update"]];
      dots(kinds.map(([color, words]) => [this.colors[color], words]));
    },
  };

  // Colours that are told apart, by the golden angle.
  function hue(k, dark) { return `hsl(${Math.round(210 + 137.5 * k) % 360} ${dark ? "45% 34%" : "70% 80%"})`; }

  // From pale to strong, as even as the eye sees it.
  function ramp(part, dark) {
    const p = Math.max(0, Math.min(1, part));
    return dark ? `hsl(${Math.round(262 - 222 * p)} ${45 + 35 * p}% ${24 + 40 * p}%)` : `hsl(${Math.round(48 - 48 * p)} ${88 - 8 * p}% ${91 - 48 * p}%)`;
  }
})();
