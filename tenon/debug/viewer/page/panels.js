"use strict";
// The tabs on the right: what is chosen, its kernels and their code, what a pass changed, time, guards and fallbacks.

(function () {
  const { make, say } = Tenon;
  const MOST = 400;           // rows of a list that is drawn

  // ---------------------------------------------------------- what is chosen

  Tenon.nodePanel = function (app, element) {
    const item = app.chosenItem();
    if (!item && !app.selection.size) {
      element.replaceChildren(make("p", { class: "hint" }, "Choose a node, a module or a line."), summary(app));
      return;
    }
    const { model } = app, parts = [];
    if (item && item.node) parts.push(...nodeRows(app, item));
    else if (item) parts.push(make("h2", {}, item.title), make("p", {}, `${item.count} nodes` + (item.says ? ` of ${item.says}` : "")));
    else parts.push(make("h2", {}, app.title || `${app.selection.size} nodes`));
    const origins = app.selection;
    if (!item || !item.node) parts.push(facts(costRows(app)));
    const steps = [...model.stepsOf(origins)];
    if (steps.length) parts.push(make("h3", {}, `runs in ${steps.length} step${steps.length > 1 ? "s" : ""}`), stepList(app, steps));
    if (!item || !item.node) parts.push(make("h3", {}, "nodes"), nodeList(app, [...app.tree.graph.nodes.values()].filter(n => origins.has(n.origin))));
    element.replaceChildren(...parts);
  };

  function costRows({ model, selection }) {
    return [["time", say.seconds(model.sumCost(selection, "seconds"))], ["FLOPs", say.flops(model.sumCost(selection, "flops"))],
      ["memory traffic", say.bytes(model.sumCost(selection, "bytes"))], ["kept for", say.life(model.sumCost(selection, "life"))]];
  }

  function nodeRows(app, item) {
    const { model, tree } = app, node = item.node, origin = model.origin(node);
    const rows = [["type", node.types.join(", ")], ["bytes", node.bytes.map(say.bytes).join(", ")]];
    if (origin) {
      if (origin.path) rows.push(["module", origin.path + (origin.kind ? ` (${origin.kind})` : "")]);
      rows.push(["phase", origin.phase]);
      if (origin.file >= 0) rows.push(["line", `${model.data.files[origin.file].name}:${origin.line}  ${(model.data.files[origin.file].lines[origin.line - 1] || "").trim()}`]);
    }
    for (const [name, value] of Object.entries(node.attrs)) rows.push([name, value]);
    const results = app.pass === 0 ? model.data.results.flatMap(([id], k) => id === node.id ? [k] : []) : [];
    if (results.length) rows.push(["result", results.join(", ")]);
    if (!app.pass) for (const words of app.valuesOf(node)) rows.push(["value", words]);
    rows.push(...costRows(app));
    return [make("h2", {}, node.op, make("small", {}, ` n${node.id}`)), make("pre", { class: "line" }, model.text(node, tree.graph)),
      make("div", { class: "buttons" },
        make("button", { onclick: () => app.markPath("from") }, "path from here (a)"),
        make("button", { onclick: () => app.markPath("to") }, "path to here (b)"),
        item.isGroup ? make("button", { onclick: () => app.toggle(item) }, app.isOpen(item) ? "close" : "open") : null),
      app.from && app.from !== node.id ? make("p", { class: "hint" }, `path from n${app.from}`) : null,
      app.way ? make("p", { class: "hint" }, `a path of ${app.way.length} nodes`) : null,
      facts(rows),
      make("h3", {}, "reads"), inputList(app, node),
      make("h3", {}, "read by"), nodeList(app, (tree.graph.users.get(node.id) || []).map(id => tree.graph.nodes.get(id)))].filter(Boolean);
  }

  function inputList(app, node) {
    const { model, tree } = app;
    const names = node.parent ? tree.graph.nodes.get(node.parent[0]).graphs[node.parent[1]].params : model.data.params;
    return make("ul", { class: "list" }, ...node.inputs.slice(0, MOST).map(x => {
      if (x === null) return make("li", {}, "None");
      if (typeof x === "string") return make("li", {}, x);
      if (x[0] >= 0) return nodeRow(app, tree.graph.nodes.get(x[0]) || tree.graph.before.nodes.get(x[0]));
      const p = names[x[1]] || { name: `p${x[1]}`, type: "" };
      return make("li", {}, make("em", {}, p.kind || "parameter"), ` ${p.name || `p${x[1]}`} `, make("code", {}, p.type));
    }));
  }

  function nodeList(app, nodes) {
    const more = nodes.length - MOST;
    return make("ul", { class: "list" }, ...nodes.slice(0, MOST).map(n => nodeRow(app, n)),
      more > 0 ? make("li", {}, `and ${more} more`) : null);
  }

  function nodeRow(app, node) {
    return make("li", {}, make("button", { class: "link", onclick: () => app.goTo(node.id) }, `n${node.id} ${node.op}`),
      make("code", {}, ` ${node.types.join(", ")}`));
  }

  function facts(rows) {
    return make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
  }

  function summary(app) {
    const { data } = app.model;
    const seconds = data.steps.reduce((sum, s) => sum + (s.seconds || 0), 0);
    const flops = data.steps.reduce((sum, s) => sum + s.flops, 0);
    const rows = [["function", data.name], ["nodes", `${data.nodes.length} captured`], ["kernels", `${data.kernels.length}, ${data.steps.length} steps`]];
    if (seconds) rows.push(["steps take", say.seconds(seconds)], ["rate", `${(flops / seconds / 1e9).toPrecision(3)} GFLOP/s`]);
    rows.push(["operations", say.flops(flops)]);
    if (data.arena) rows.push(["arena", `${say.bytes(data.arena.size)}, at least ${say.bytes(data.arena.lower_bound)}`]);
    const sizes = Object.entries(data.sizes).map(([n, v]) => `${n} = ${v}`);
    if (sizes.length) rows.push(["sizes", sizes.join(", ")]);
    rows.push(["threads", data.threads], ["Tenon", data.tenon]);
    return facts(rows);
  }

  // ---------------------------------------------------------- what a pass changed

  Tenon.changePanel = function (app, element) {
    const { model, tree } = app, pass = model.passes[app.pass], { graph } = tree;
    if (!app.pass) {
      element.replaceChildren(make("p", { class: "hint" }, "This is the graph as it was captured. Move the slider to see what each pass does."), passTable(app));
      return;
    }
    const before = graph.before;
    const title = make("h2", {}, pass.name, make("small", {}, ` ${say.seconds(pass.seconds)}`));
    const words = make("p", { class: "hint" }, `${before.nodes.size} → ${graph.nodes.size} nodes, those inside of others too`
      + (pass.skipped ? `; ${pass.skipped} more pass${pass.skipped > 1 ? "es" : ""} behind it change nothing` : ""));
    const rules = pass.rules.map(r => make("li", {}, make("button", { class: "link rule", onclick: () => app.selectOrigins(new Set(r.origins.filter(o => o >= 0)), r.where) },
      `${r.origins.length} × ${r.rule}`), make("small", {}, ` ${r.where}`)));
    const old = id => model.text(before.nodes.get(id), before), now = id => model.text(graph.nodes.get(id), graph);
    const diff = make("div", { class: "diff", role: "list", "aria-label": `what ${pass.name} changed` });
    section(app, diff, "removed", pass.removed, id => [["−", old(id)]]);
    section(app, diff, "added", pass.added.map(n => n.id), id => [["+", now(id)]]);
    section(app, diff, "changed", pass.changed_nodes.map(n => n.id), id => [["−", old(id)], ["+", now(id)]]);
    section(app, diff, "moved", pass.moved.map(n => n.id), id => [["→", `${now(id)}   in n${graph.nodes.get(id).parent?.[0] ?? " (outermost)"}`]]);
    if (!diff.children.length) diff.append(make("p", { class: "hint" }, "Nodes are in another order; nothing else is changed."));
    element.replaceChildren(title, words, ...(rules.length ? [make("h3", {}, "by these rules"), make("ul", { class: "list" }, ...rules)] : []), diff);
  };

  function section(app, diff, name, ids, lines) {
    if (!ids.length) return;
    const list = make("details", name === "moved" && ids.length > 30 ? {} : { open: "" }, make("summary", {}, `${ids.length} ${name}`));
    for (const id of ids.slice(0, MOST)) for (const [sign, text] of lines(id)) {
      const kind = sign === "−" ? "removed" : sign === "+" ? (name === "changed" ? "changed" : "added") : "moved";
      list.append(make("button", { class: `change ${kind}`, role: "listitem", onclick: () => app.goTo(id) }, `${sign} ${text}`));
    }
    if (ids.length > MOST) list.append(make("p", { class: "hint" }, `and ${ids.length - MOST} more`));
    diff.append(list);
  }

  function passTable(app) {
    return table(["pass", "nodes", "time"], app.model.passes.slice(1).map((p, k) => ({
      cells: [p.name, String(p.nodes), say.seconds(p.seconds)], choose: () => app.setPass(k + 1) })));
  }

  // ---------------------------------------------------------- time

  Tenon.timePanel = function (app, element) {
    const { model } = app, { steps } = model.data;
    const total = steps.reduce((sum, s) => sum + (s.seconds || 0), 0);
    if (!steps.length) { element.replaceChildren(make("p", { class: "hint" }, "Nothing is compiled here.")); return; }
    const strip = Tenon.timeline(app, total);
    const kind = make("select", { "aria-label": "rows of the table", onchange: e => { app.rows = e.target.value; app.refresh(); } },
      ...["step", "operator", "line", "module"].map(n => make("option", { value: n, ...(app.rows === n ? { selected: "" } : {}) }, `by ${n}`)));
    const critical = make("button", { onclick: () => app.showCritical() }, "critical path");
    element.replaceChildren(make("p", { class: "hint" }, total ? `${steps.length} steps, ${say.seconds(total)} one after the other` : `${steps.length} steps, not timed`),
      strip, make("div", { class: "buttons" }, kind, critical), costTable(app, total));
  };

  function costTable(app, total) {
    const { model } = app, { data } = model, sums = new Map();
    const add = (key, choose, part) => {
      const row = sums.get(key) || { seconds: 0, flops: 0, bytes: 0, choose };
      for (const what of ["seconds", "flops", "bytes"]) row[what] += part[what] || 0;
      sums.set(key, row);
    };
    if (app.rows === "step") {
      data.steps.forEach((s, k) => add(`${k} ${s.name}`, () => app.selectSteps([k], s.name), s));
    } else data.origins.forEach((o, k) => {
      const key = app.rows === "module" ? o.path || o.phase : app.rows === "line"
        ? o.file >= 0 ? `${data.files[o.file].name}:${o.line}` : "elsewhere" : data.nodes.find ? app.opOf(k) : "";
      add(key, () => app.selectOrigins(new Set(data.origins.flatMap((p, j) => same(app, p, j, o, k) ? [j] : [])), key), o);
    });
    const rows = [...sums].sort((a, b) => b[1].seconds - a[1].seconds || b[1].bytes - a[1].bytes);
    return table([app.rows, "time", "share", "GB/s", "GFLOP/s"], rows.slice(0, MOST).map(([key, r]) => ({
      choose: r.choose, part: total ? r.seconds / total : 0,
      cells: [key, say.seconds(r.seconds), total ? `${(100 * r.seconds / total).toFixed(1)} %` : "",
        r.seconds ? (r.bytes / r.seconds / 1e9).toPrecision(3) : "", r.seconds && r.flops ? (r.flops / r.seconds / 1e9).toPrecision(3) : ""] })));
  }

  function same(app, p, j, o, k) {
    if (app.rows === "module") return (p.path || p.phase) === (o.path || o.phase);
    if (app.rows === "line") return p.file === o.file && p.line === o.line;
    return app.opOf(j) === app.opOf(k);
  }

  function table(columns, rows) {
    const head = make("tr", {}, ...columns.map(c => make("th", { scope: "col" }, c)));
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.map(row => {
      const tr = make("tr", { tabindex: "0", onclick: row.choose, onkeydown: e => { if (e.key === "Enter") row.choose(); } },
        ...row.cells.map(c => make("td", { title: c }, c)));
      if (row.part) tr.style.setProperty("--part", row.part);
      return tr;
    })));
  }

  // ---------------------------------------------------------- guards and fallbacks

  Tenon.whyPanel = function (app, element) {
    const { data } = app.model, parts = [];
    for (const f of data.fallbacks) {
      parts.push(make("div", { class: "fallback", role: "alert" }, make("h3", {}, "runs with graph breaks"), make("pre", {}, f.text),
        f.hint ? make("p", {}, `hint: ${f.hint}`) : null));
    }
    parts.push(make("h3", {}, "captures"), make("ul", { class: "list" }, ...data.captures.map((c, k) =>
      make("li", {}, `${k + 1}: ${c.nodes} nodes`, c.why ? make("em", {}, ` since ${c.why}`) : "", make("code", {}, ` ${c.types.join(", ")}`)))));
    parts.push(make("h3", {}, "what tn.explain says"), make("pre", { class: "wrap" }, data.explanation.join("\n")));
    const needle = make("input", { type: "search", placeholder: "guards with …", "aria-label": "search the guards" });
    const list = make("ul", { class: "list guards" });
    const show = () => {
      const found = data.guards.filter(g => g.includes(needle.value));
      list.replaceChildren(...found.slice(0, MOST).map(g => make("li", {}, make("code", {}, g))),
        make("li", {}, found.length > MOST ? `and ${found.length - MOST} more` : ""));
    };
    needle.addEventListener("input", show);
    show();
    parts.push(make("h3", {}, `${data.guards.length} guards on values, ${data.guards_by_identity} by identity`), needle, list);
    element.replaceChildren(...parts);
  };

  function stepList(app, steps) {
    const { data } = app.model;
    return make("ul", { class: "list" }, ...steps.slice(0, MOST).map(k => make("li", {},
      make("button", { class: "link", onclick: () => { app.kernel = data.steps[k].kernel ?? app.kernel; app.openTab("kernels"); } }, `${k}: ${data.steps[k].name}`),
      make("small", {}, ` ${say.seconds(data.steps[k].seconds)}`))));
  }
})();
