"use strict";
// The tab of kernels: loops, LLVM's code and the machine's, whose lines belong together and to lines of the source.
//
// A kernel's `lines` say of each line of its loops which nodes of its body it computes (`nodes`, places in the `body` of
// a step, which has their origins), and of each line of LLVM's and the machine's code which line of the loops it is of.

(function () {
  const { make, say } = Tenon;
  const MOST = 400;           // kernels that are listed

  Tenon.kernelPanel = function (app, element) {
    const { model } = app, { kernels } = model.data;
    const lit = new Set([...model.stepsOf(app.selection)].map(k => model.data.steps[k].kernel).filter(k => k !== null));
    const order = kernels.map((_, k) => k).sort((a, b) => lit.has(b) - lit.has(a) || timeOf(model, b) - timeOf(model, a));
    if (app.kernel === null || lit.size && !lit.has(app.kernel)) app.kernel = order.length ? order[0] : null;
    const list = make("ul", { class: "list kernels", role: "listbox", "aria-label": "kernels" }, ...order.slice(0, MOST).map(k => {
      const calls = model.callsOfKernel[k].length;
      return make("li", {}, make("button", { class: "link" + (k === app.kernel ? " on" : "") + (lit.has(k) ? " lit" : ""), role: "option",
        "aria-selected": String(k === app.kernel), "data-kernel": String(k),
        onclick: () => { app.kernel = k; app.selectSteps(model.callsOfKernel[k], `kernel ${kernels[k].name}`); } },
      kernels[k].name), make("small", {}, ` ${calls} call${calls === 1 ? "" : "s"} · ${say.seconds(timeOf(model, k))}`));
    }));
    element.replaceChildren(make("p", { class: "hint" }, lit.size ? `${lit.size} of ${kernels.length} kernels compute what is chosen` : `${kernels.length} kernels, the slowest first`), list);
    if (app.kernel !== null) element.append(...codeOf(app, kernels[app.kernel]));
    element.querySelector("pre.kernel .lit")?.scrollIntoView({ block: "nearest" });
  };

  const timeOf = (model, k) => model.callsOfKernel[k].reduce((sum, c) => sum + (model.data.steps[c].seconds || 0), 0);

  function codeOf(app, kernel) {
    const kinds = [["loops", "Loops"], ["llvm", "LLVM"], ["asm", "Assembly"]].filter(([name]) => kernel[name]);
    if (!kinds.some(([name]) => name === app.code)) app.code = "loops";
    const tabs = make("div", { class: "tabs small", role: "tablist", "aria-label": "code of the kernel" }, ...kinds.map(([name, title]) =>
      make("button", { role: "tab", "aria-selected": String(app.code === name), "data-code": name,
        onclick: () => { app.code = name; app.refresh(); } }, title)));
    const words = kernel.compile ? `LLVM's text in ${say.seconds(kernel.compile[0])}, machine code in ${say.seconds(kernel.compile[1])}` : "";
    const pre = make("pre", { class: "code kernel", tabindex: "0", "aria-label": `${app.code} of ${kernel.name}` });
    fill(pre, (kernel[app.code] || "").split("\n"), 0, rowsOf(app, kernel));
    return [tabs, make("small", { class: "compiled" }, words), pre];
  }

  // How a line of the code that is shown is drawn: lit where it computes what is chosen, a button where it has nodes.
  function rowsOf(app, kernel) {
    const { lines } = kernel, k = app.kernel;
    if (!lines || !lines.nodes.length) return () => ({});
    const loop = app.code === "loops" ? n => n + 1 : n => (lines[app.code] || [])[n] || 0;
    const lit = litLines(app, kernel);
    return n => {
      const line = loop(n);
      if (!line) return {};
      const chosen = app.loopLine && app.loopLine.kernel === k && app.loopLine.line === line;
      return { class: `line${chosen || lit.has(line) ? " lit" : ""}`, "data-line": String(line),
        onclick: () => app.selectLoopLine(k, line) };
    };
  }

  // The lines of a kernel's loops that compute what is chosen: whole loops only where all in them is.
  function litLines(app, kernel) {
    const found = new Set(), { model } = app;
    if (app.loopLine && app.loopLine.kernel === app.kernel) return found.add(app.loopLine.line);
    if (!app.selection.size) return found;
    const steps = model.callsOfKernel[app.kernel].map(c => model.data.steps[c]);
    kernel.lines.nodes.forEach((nodes, n) => {
      const whole = /^\s*for /.test(kernel.loops.split("\n", n + 1)[n]);
      const has = step => place => app.selection.has(step.body[place]);
      if (nodes.length && steps.some(step => whole ? nodes.every(has(step)) : nodes.some(has(step)))) found.add(n + 1);
    });
    return found;
  }

  // A thousand lines at once; more when the end comes into sight.
  function fill(pre, lines, from, row) {
    const until = Math.min(lines.length, from + 1000);
    for (let k = from; k < until; k++) pre.append(make("span", row(k), ...Tenon.colored(lines[k])), "\n");
    if (until === lines.length) return;
    pre.append(make("button", { class: "gap", onclick: e => { e.target.remove(); fill(pre, lines, until, row); } }, `${lines.length - until} more lines`));
  }

  // What a line of the loops of a kernel computes, in all steps that call it.
  Tenon.Model.prototype.originsOfLoopLine = function (kernel, line) {
    const { lines } = this.data.kernels[kernel], found = new Set();
    for (const c of this.callsOfKernel[kernel]) {
      for (const place of lines.nodes[line - 1] || []) {
        const origin = this.data.steps[c].body[place];
        if (origin >= 0) found.add(origin);
      }
    }
    return found;
  };
})();
