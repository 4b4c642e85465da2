"use strict";
// The user's files on the left: a bar of time a line; a click lights up all that became of it.

Tenon.SourceView = class {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    this.rows = new Map();      // "file:line" -> row
    const { files } = app.model.data;
    const most = Math.max(1e-12, ...app.model.lineTotals.flatMap(lines => [...lines.values()].map(t => t.seconds)));
    element.append(...files.map((file, k) => this.file(file, k, most)));
    if (!files.length) element.append(...this.excerpt());
  }

  file(file, k, most) {
    const totals = this.app.model.lineTotals[k];
    const numbers = [...totals.keys()].sort((a, b) => a - b);
    const shown = new Set();
    for (const n of numbers) for (let j = n - 6; j <= n + 4; j++) if (j >= 1 && j <= file.lines.length) shown.add(j);
    const body = Tenon.make("div", { class: "code", role: "listbox", "aria-label": `source of ${file.name}` });
    let last = 0;
    for (const n of [...shown].sort((a, b) => a - b)) {
      if (n > last + 1) body.append(this.gap(file, k, last + 1, n - 1, body));
      body.append(this.row(file, k, n, totals.get(n), most));
      last = n;
    }
    if (last < file.lines.length) body.append(this.gap(file, k, last + 1, file.lines.length, body));
    return Tenon.make("section", {}, Tenon.make("h3", { title: file.path }, file.name), body);
  }

  // Lines that no node comes from, folded.
  gap(file, k, first, end, body) {
    const button = Tenon.make("button", { class: "gap", onclick: () => {
      for (let n = first; n <= end; n++) body.insertBefore(this.row(file, k, n, null, 1), button);
      button.remove();
    } }, `⋯ ${end - first + 1} line${end > first ? "s" : ""}`);
    return button;
  }

  row(file, k, n, total, most) {
    const text = file.lines[n - 1] || "";
    const row = Tenon.make("div", { class: total ? "row has" : "row", role: "option", tabindex: total ? "0" : null,
      "data-line": `${k}:${n}`, "aria-selected": "false",
      "aria-label": total ? `line ${n}, ${total.nodes} nodes: ${text.trim()}` : null });
    const bar = Tenon.make("i", { class: "heat", "aria-hidden": "true" });
    if (total) {
      bar.style.setProperty("--part", Math.sqrt(total.seconds / most));
      row.title = `${total.nodes} nodes · ${Tenon.say.seconds(total.seconds)} · ${Tenon.say.flops(total.flops)} · ${Tenon.say.bytes(total.bytes)}`
        + (total.own < total.nodes ? `\nby itself ${total.own} nodes, ${Tenon.say.seconds(total.ownSeconds)}` : "");
      const choose = () => this.app.selectLine(k, n);
      row.addEventListener("click", choose);
      row.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(); } });
    }
    row.append(bar, Tenon.make("b", {}, String(n)), Tenon.make("code", {}, ...Tenon.colored(text)),
      Tenon.make("small", {}, total && total.seconds ? Tenon.say.seconds(total.seconds) : total ? `${total.nodes}` : ""));
    this.rows.set(`${k}:${n}`, row);
    return row;
  }

  // Of a function that runs with graph breaks: what of its source was in the graph, and where it stopped.
  excerpt() {
    const { excerpt } = this.app.model.data;
    const body = Tenon.make("div", { class: "code" });
    for (const [number, text, mark, words] of excerpt) {
      body.append(Tenon.make("div", { class: `row ${mark}` }, Tenon.make("i"), Tenon.make("b", {}, number || ""),
        Tenon.make("code", {}, ...Tenon.colored(text)), Tenon.make("small", {}, words)));
    }
    return [body];
  }

  light() {
    const { app } = this, strong = new Set(), weak = new Set();
    for (const k of app.selection) {
      const o = app.model.data.origins[k];
      strong.add(`${o.file}:${o.line}`);
      for (const [file, line] of o.stack) weak.add(`${file}:${line}`);
    }
    let first = null;
    for (const [key, row] of this.rows) {
      const chosen = app.line === key;
      row.classList.toggle("strong", strong.has(key) && app.selection.size > 0);
      row.classList.toggle("weak", weak.has(key) && !strong.has(key));
      row.classList.toggle("chosen", chosen);
      row.setAttribute("aria-selected", String(strong.has(key) || chosen));
      if (strong.has(key) && !first) first = row;
    }
    if (first && app.line === null) first.scrollIntoView({ block: "nearest" });
  }
};

// Python, or code of any kind, as coloured words.
Tenon.colored = function (text) {
  const parts = [];
  const words = /(#.*|;.*)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|class|return|for|in|if|elif|else|while|with|import|from|as|not|and|or|None|True|False|lambda|yield|parallel|range|local|define|call|load|store|fmul|fadd|br|phi|ret|getelementptr)\b|\b(\d[\d_.]*(?:e[+-]?\d+)?)\b/g;
  let last = 0;
  for (const m of text.matchAll(words)) {
    if (m.index > last) parts.push(text.slice(last, m.index));
    const kind = m[1] ? "comment" : m[2] ? "string" : m[3] ? "word" : "number";
    parts.push(Tenon.make("span", { class: kind }, m[0]));
    last = m.index + m[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
};
