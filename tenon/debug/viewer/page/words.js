"use strict";
// What is told of a box that is pointed at, and to those who listen.  Part of the page's App.

(function () {
  const byId = id => document.getElementById(id);

  Tenon.Words = {
    tipLines(item) {
      if (item.kind === "param") return [item.title, item.type, "an argument"];
      const costs = ["seconds", "flops", "bytes"].map(w => [w, this.costOf(item, w)]).filter(([, c]) => c).map(([w, c]) => Tenon.say[w](c));
      const lines = [Tenon.titleOf(item) + (item.node ? ` n${item.node.id}` : "")];
      if (item.node) lines.push(item.node.types.join(", "));
      else lines.push(`${item.count} nodes${item.says ? ` · ${item.says}` : ""}`);
      const origin = item.node && this.model.origin(item.node);
      if (origin && origin.path) lines.push(origin.path);
      if (origin && origin.file >= 0) lines.push(`${this.model.data.files[origin.file].name}:${origin.line}`);
      if (this.deviceOf(item) >= 0) lines.push(`on ${this.model.data.devices.names[this.deviceOf(item)]}`);
      if (costs.length) lines.push(costs.join(" · "));
      if (item.node && !this.pass) lines.push(...this.valuesOf(item.node));
      const mark = this.pass && this.markOf(item);
      if (mark) lines.push(`${mark} by ${this.model.passes[this.pass].name}`);
      return lines;
    },

    // What a captured node computed, where that was asked for.
    valuesOf(node) {
      const found = this.model.data.values[node.id];
      return found ? [...found.outputs, ...(found.turns > 1 ? [`the last of ${found.turns} turns`] : [])] : [];
    },

    say(lines, event) {
      this.tip.hidden = !lines;
      if (!lines) return;
      this.tip.replaceChildren(...lines.map((line, k) => Tenon.make(k ? "div" : "strong", {}, line)));
      this.tip.style.transform = `translate(${Math.min(event.clientX + 14, innerWidth - this.tip.offsetWidth - 8)}px, ${Math.min(event.clientY + 14, innerHeight - this.tip.offsetHeight - 8)}px)`;
    },

    announce(words) { byId("live").textContent = words; },
  };
})();
