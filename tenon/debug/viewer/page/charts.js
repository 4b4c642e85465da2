"use strict";
// What runs when, as a strip; what lies where in the arena and how long, as a map.  Both on canvas; a click chooses.

(function () {
  const { make, say } = Tenon;

  // Steps one after the other, as long as they take.
  Tenon.timeline = function (app, total) {
    const { steps } = app.model.data;
    const lit = app.model.stepsOf(app.selection);
    const widths = steps.map(s => (total ? s.seconds || 0 : 1)), sum = widths.reduce((a, b) => a + b, 0) || 1;
    const starts = [];
    widths.reduce((at, w, k) => (starts[k] = at, at + w), 0);
    const canvas = chart(app, 64, `${steps.length} steps along time`, (g, w, h) => {
      steps.forEach((step, k) => {
        const x = starts[k] / sum * w, width = Math.max(0.4, widths[k] / sum * w);
        g.globalAlpha = app.selection.size && !lit.has(k) ? 0.22 : 1;
        g.fillStyle = app.colors[phaseOf(app, step)];
        g.fillRect(x, 8, Math.max(0.4, width - 0.3), h - 22);
        if (lit.has(k) && app.selection.size) { g.fillStyle = app.colors.accent; g.fillRect(x, 2, Math.max(1, width), 4); }
      });
      g.globalAlpha = 1;
      g.fillStyle = app.colors.dim;
      g.font = "10px system-ui, sans-serif";
      g.fillText("0", 0, h - 3);
      const end = total ? say.seconds(total) : `${steps.length} steps`;
      g.fillText(end, w - g.measureText(end).width, h - 3);
    }, (x, y, w) => {
      const at = x / w * sum;
      const k = starts.findIndex((s, j) => at >= s && at < s + widths[j]);
      return k < 0 ? null : { words: [steps[k].name, `step ${k} · ${say.seconds(steps[k].seconds)}`, `${say.flops(steps[k].flops)} · ${say.bytes(steps[k].bytes)}`],
        choose: () => app.selectSteps([k], steps[k].name) };
    });
    return canvas;
  };

  function phaseOf(app, step) {
    const best = step.origins.reduce((a, b) => (b[1] > (a ? a[1] : -1) && b[0] >= 0 ? b : a), null);
    return best ? app.model.data.origins[best[0]].phase : "update";
  }

  // Steps to the right, addresses upwards: every place from the step that makes it to the last that reads it.
  Tenon.memoryPanel = function (app, element) {
    const { arena, steps } = app.model.data;
    if (!arena || !arena.size) { element.replaceChildren(make("p", { class: "hint" }, "Nothing lies between kernels.")); return; }
    const lit = app.model.stepsOf(app.selection);
    const live = liveBytes(arena), peak = live.indexOf(Math.max(...live));
    const order = arena.places.map((p, k) => k).sort((a, b) => arena.places[b].bytes - arena.places[a].bytes);
    const map = chart(app, 360, "the arena: steps to the right, addresses upwards", (g, w, h) => {
      const sx = w / Math.max(1, arena.steps), sy = (h - 16) / arena.size;
      for (const place of arena.places) {
        const chosen = lit.has(place.step) && app.selection.size;
        g.globalAlpha = app.selection.size && !chosen ? 0.2 : 0.9;
        g.fillStyle = app.colors[phaseOf(app, steps[place.step])];
        const x = place.first * sx, y = h - 16 - (place.offset + place.bytes) * sy;
        const width = Math.max(1, (place.last - place.first + 1) * sx - 0.5), height = Math.max(0.6, place.bytes * sy - 0.4);
        g.fillRect(x, y, width, height);
        if (chosen) { g.strokeStyle = app.colors.accent; g.lineWidth = 1.5; g.strokeRect(x, y, width, height); }
      }
      g.globalAlpha = 1;
      g.strokeStyle = app.colors.removed;
      g.setLineDash([4, 3]);
      g.beginPath(); g.moveTo((peak + 0.5) * sx, 0); g.lineTo((peak + 0.5) * sx, h - 16); g.stroke();
      g.setLineDash([]);
      g.strokeStyle = app.colors.text;
      g.lineWidth = 1;
      g.beginPath();
      live.forEach((bytes, k) => { const y = h - 16 - bytes * sy; if (k) g.lineTo(k * sx, y); g.lineTo((k + 1) * sx, y); });
      g.stroke();
      g.fillStyle = app.colors.dim;
      g.font = "10px system-ui, sans-serif";
      g.fillText("step 0", 0, h - 3);
      g.fillText(String(arena.steps - 1), w - g.measureText(String(arena.steps - 1)).width, h - 3);
    }, (x, y, w, h) => {
      const step = Math.floor(x / w * arena.steps), at = (h - 16 - y) / (h - 16) * arena.size;
      const place = arena.places.find(p => p.first <= step && step <= p.last && p.offset <= at && at < p.offset + p.bytes);
      return place ? { words: [`${place.type} · ${say.bytes(place.bytes)}`, `made by ${steps[place.step]?.name}`, `steps ${place.first} to ${place.last}`],
        choose: () => app.selectSteps([place.step], place.type) } : { words: [`step ${step}`, `${say.bytes(live[step] || 0)} live`] };
    });
    element.replaceChildren(
      make("p", { class: "hint" }, `${say.bytes(arena.size)}, at least ${say.bytes(arena.lower_bound)}; most is live at step ${peak}: ${steps[peak]?.name || ""}`),
      map, make("h3", {}, "largest places"),
      make("ul", { class: "list" }, ...order.slice(0, 30).map(k => {
        const p = arena.places[k], atPeak = p.first <= peak && peak <= p.last;
        return make("li", {}, make("button", { class: "link", onclick: () => app.selectSteps([p.step], p.type) }, `${say.bytes(p.bytes)} ${p.type}`),
          make("small", {}, ` steps ${p.first} to ${p.last}${atPeak ? " · at the peak" : ""} · ${steps[p.step]?.name || ""}`));
      })));
  };

  function liveBytes(arena) {
    const changes = new Array(arena.steps + 1).fill(0);
    for (const p of arena.places) { changes[p.first] += p.bytes; changes[p.last + 1] -= p.bytes; }
    let sum = 0;
    return changes.slice(0, -1).map(c => (sum += c));
  }

  // A canvas as wide as its panel; `find` says what is under the mouse.
  function chart(app, height, label, paint, find) {
    const canvas = make("canvas", { class: "chart", role: "img", "aria-label": label });
    canvas.style.height = `${height}px`;
    const draw = () => {
      const w = canvas.clientWidth, h = height, ratio = devicePixelRatio || 1;
      if (!w) return;
      canvas.width = w * ratio;
      canvas.height = h * ratio;
      const g = canvas.getContext("2d");
      g.scale(ratio, ratio);
      paint(g, w, h);
    };
    new ResizeObserver(draw).observe(canvas);
    const under = e => find(e.offsetX, e.offsetY, canvas.clientWidth, height);
    canvas.addEventListener("pointermove", e => app.say(under(e)?.words, e));
    canvas.addEventListener("pointerleave", () => app.say(null));
    canvas.addEventListener("click", e => under(e)?.choose?.());
    return canvas;
  }
})();
