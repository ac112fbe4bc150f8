"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const goals = data.objectives.map((o) => o.name);
const short = (v) => (typeof v === "number" ? String(Number(v.toPrecision(4))) : String(v));

// A promise rounds up.
function up(v) {
  if (v === null || v === undefined) return "none";
  const unit = 10 ** (Math.floor(Math.log10(v)) - 3);
  return Number((Math.ceil((v / unit) * (1 - 1e-12)) * unit).toPrecision(12));
}
const epsilon = (p) => up(p.measures.epsilon);
const goal = (p, o) => (o.up ? up(p.objectives[o.name]) : p.objectives[o.name]);

function node(parent, name, attributes, text) {
  const svg = ["svg", "g", "circle", "line", "path", "text", "rect"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function ticks(low, high) {
  const raw = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Number(v.toPrecision(10)));
  return out;
}

function extent(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const pad = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
  return [low - pad, high + pad];
}

// Axes, grid and labels; returns the two scales and the drawing to add to.
function frame(box, xs, ys, xLabel, yLabel, height) {
  const W = 1000, H = height, left = 70, right = 20, top = 14, bottom = 48;
  const svg = node(box, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${yLabel} against ${xLabel}` });
  const X = (v) => left + ((v - xs[0]) / (xs[1] - xs[0])) * (W - left - right);
  const Y = (v) => H - bottom - ((v - ys[0]) / (ys[1] - ys[0])) * (H - top - bottom);
  for (const v of ticks(...xs)) {
    node(svg, "line", { x1: X(v), x2: X(v), y1: top, y2: H - bottom, class: "grid" });
    node(svg, "text", { x: X(v), y: H - bottom + 18, "text-anchor": "middle" }, short(v));
  }
  for (const v of ticks(...ys)) {
    node(svg, "line", { x1: left, x2: W - right, y1: Y(v), y2: Y(v), class: "grid" });
    node(svg, "text", { x: left - 8, y: Y(v) + 4, "text-anchor": "end" }, short(v));
  }
  node(svg, "text", { x: (left + W - right) / 2, y: H - 8, "text-anchor": "middle", class: "axis" }, xLabel);
  node(svg, "text", { x: 16, y: (top + H - bottom) / 2, "text-anchor": "middle", class: "axis",
    transform: `rotate(-90 16 ${(top + H - bottom) / 2})` }, yLabel);
  return { svg, X, Y, W, H, left, right, top, bottom };
}

function hover(plot, marks, label) {
  const tip = byId("tip");
  plot.svg.addEventListener("pointermove", (event) => {
    const box = plot.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * plot.W, y = ((event.clientY - box.top) / box.height) * plot.H;
    let near = null, best = 900;
    for (const mark of marks) {
      const d = (mark.x - x) ** 2 + (mark.y - y) ** 2;
      if (d < best) [near, best] = [mark, d];
    }
    tip.hidden = !near;
    if (!near) return;
    tip.textContent = label(near.of);
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - high - 8))}px`;
  });
  plot.svg.addEventListener("pointerleave", () => { tip.hidden = true; });
}

function describe(p) {
  const spread = (name) => {
    const s = p.spread[name];
    return s ? ` ± ${short(s)}` : "";
  };
  const rows = [`trial ${p.trial}${p.front ? ", on the front" : ""}${p.feasible ? "" : ", outside the limits"}`];
  for (const o of data.objectives) rows.push(`${o.name}: ${short(goal(p, o))}`);
  rows.push("");
  for (const [k, v] of Object.entries(p.settings)) rows.push(`${k}: ${short(v)}`);
  rows.push("");
  for (const [k, v] of Object.entries(p.measures)) if (v !== null) rows.push(`${k}: ${short(k.startsWith("epsilon") ? up(v) : v)}${spread(k)}`);
  return rows.join("\n");
}

function drawFront() {
  if (!data.points.length) return void node(byId("front"), "p", {}, "No trial was measured.");
  const [yName, xName] = goals;
  const xOf = (p) => (xName ? p.objectives[xName] : p.trial), yOf = (p) => p.objectives[yName];
  const limits = data.objectives.map((o) => o.limit);
  const xs = extent([...data.points.map(xOf), ...(limits[1] != null ? [limits[1]] : [])]);
  const ys = extent([...data.points.map(yOf), ...(limits[0] != null ? [limits[0]] : [])]);
  const plot = frame(byId("front"), xs, ys, xName ? data.objectives[1].heading : "trial", data.objectives[0].heading, 520);
  if (xName && limits[1] != null) node(plot.svg, "line", { x1: plot.X(limits[1]), x2: plot.X(limits[1]), y1: plot.top, y2: plot.H - plot.bottom, class: "limit" });
  if (limits[0] != null) node(plot.svg, "line", { x1: plot.left, x2: plot.W - plot.right, y1: plot.Y(limits[0]), y2: plot.Y(limits[0]), class: "limit" });
  const marks = [...data.points].sort((a, b) => a.front - b.front).map((p) => {
    const x = plot.X(xOf(p)), y = plot.Y(yOf(p));
    const style = p.front ? "fill:var(--front)" : p.feasible ? "fill:var(--other);opacity:.55" : "fill:none;stroke:var(--other);opacity:.7";
    node(plot.svg, "circle", { cx: x, cy: y, r: p.front ? 5 : 3.5, style, "data-trial": p.trial });
    if (p.recommended) node(plot.svg, "circle", { cx: x, cy: y, r: 10, style: "fill:none;stroke:var(--pick);stroke-width:2.5" });
    return { x, y, of: p };
  });
  if (xName) for (const front of fronts()) step(plot, front.map((p) => [plot.X(xOf(p)), plot.Y(yOf(p))]));
  hover(plot, marks, describe);
  const items = [["var(--front)", "Pareto front"], ["var(--other)", "within the limits"], ["none;border:1px solid var(--other)", "outside the limits"], ["none;border:2px solid var(--pick)", "recommended"]];
  for (const [style, text] of items) {
    const item = node(byId("legend"), "span", {});
    node(item, "i", { style: `background:${style}` });
    item.append(text);
  }
}

// One front; of three objectives, one for each of three budgets of the third.
function fronts() {
  const front = data.points.filter((p) => p.front), third = goals[2];
  if (!third) return [staircase(front)];
  const sorted = front.map((p) => p.objectives[third]).sort((a, b) => a - b);
  return [0.33, 0.67, 1].map((q) => sorted[Math.ceil(q * sorted.length) - 1]).map((b) => staircase(front.filter((p) => p.objectives[third] <= b)));
}

function staircase(points) {
  const [yName, xName] = goals;
  const out = [];
  for (const p of [...points].sort((a, b) => a.objectives[xName] - b.objectives[xName] || a.objectives[yName] - b.objectives[yName]))
    if (!out.length || p.objectives[yName] < out[out.length - 1].objectives[yName]) out.push(p);
  return out;
}

function step(plot, xy) {
  if (xy.length < 2) return;
  const path = xy.map(([x, y], i) => (i ? `H${x}V${y}` : `M${x},${y}`)).join("");
  node(plot.svg, "path", { d: path, style: "fill:none;stroke:var(--front);opacity:.5;stroke-width:1.5" });
}

function drawCurve() {
  if (data.curve.length < 2) return void node(byId("curve"), "p", {}, "Two trials are needed for a curve.");
  const plot = frame(byId("curve"), [0, data.curve.length], extent(data.curve), "trials", "hypervolume", 300);
  const xy = data.curve.map((v, i) => ({ x: plot.X(i + 1), y: plot.Y(v), of: [i + 1, v] }));
  const path = xy.map(({ x, y }, i) => (i ? `H${x}V${y}` : `M${x},${y}`)).join("");
  node(plot.svg, "path", { d: path, style: "fill:none;stroke:var(--front);stroke-width:2" });
  hover(plot, xy, ([n, v]) => `after ${n} trials: ${v.toPrecision(5)}`);
}

function drawSplit() {
  const colours = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#44bb99", "#9999cc"];
  const most = Math.max(...data.split.map((row) => row.reduce((a, b) => a + b, 0)));
  const plot = frame(byId("shares"), [-0.6, data.split.length - 0.4], [0, most * 1.05], "client", "training images", 300);
  const wide = 0.85 * (plot.X(1) - plot.X(0)), marks = [];
  data.split.forEach((row, k) => {
    let below = 0;
    row.forEach((count, c) => {
      if (!count) return;
      node(plot.svg, "rect", { x: plot.X(k) - wide / 2, width: wide, y: plot.Y(below + count), height: plot.Y(below) - plot.Y(below + count), fill: colours[c % 10] });
      marks.push({ x: plot.X(k), y: plot.Y(below + count / 2), of: [k, c, count] });
      below += count;
    });
  });
  hover(plot, marks, ([k, c, n]) => `client ${k}: ${n} images of class ${c}`);
  const more = data.clients > data.split.length ? `The first ${data.split.length} of ${data.clients} clients. ` : "";
  byId("clients").textContent = `${more}Training images by class, in the first repeat.`;
  byId("split").hidden = false;
}

function fill(table, heads, rows) {
  const head = node(node(table, "thead"), "tr");
  for (const h of heads) node(head, "th", {}, h);
  const body = node(table, "tbody");
  for (const { cells, pick } of rows) {
    const tr = node(body, "tr", pick ? { class: "pick" } : {});
    for (const c of cells) node(tr, "td", typeof c === "string" ? { class: "text" } : {}, short(c));
  }
}

const truth = data.view && !data.objectives.some((o) => o.up) ? [`true ε (${data.view})`] : [];
byId("summary").textContent = data.summary;
byId("why").textContent = data.why;
byId("proxies").textContent = data.proxies.join(" ");
for (const line of data.privacy) node(byId("promises"), "li", {}, line);
byId("privacy").hidden = !data.privacy.length;
byId("file").textContent = data.file;
byId("made").textContent = data.made;
const chosen = data.points.find((p) => p.recommended);
if (chosen) {
  const show = (entries, kind) => { for (const [k, v] of entries) { const d = node(byId("chosen"), "div", { class: kind }); node(d, "b", {}, short(v)); node(d, "span", {}, k); } };
  show(data.objectives.map((o) => [o.name, goal(chosen, o)]), "goal");
  if (truth.length) show([[`true ε (${data.view})`, epsilon(chosen)]], "goal");
  show(Object.entries(chosen.settings), "setting");
}
drawFront();
drawCurve();
if (data.split) drawSplit();
const names = data.points.length ? Object.keys(data.points[0].settings) : [];
fill(byId("table"), ["trial", ...data.objectives.map((o) => o.heading), ...truth, ...names],
  data.points.filter((p) => p.front).sort((a, b) => a.objectives[goals[0]] - b.objectives[goals[0]])
    .map((p) => ({ cells: [p.trial, ...data.objectives.map((o) => goal(p, o)), ...truth.map(() => epsilon(p)), ...names.map((n) => p.settings[n])], pick: p.recommended })));
if (data.failed.length) {
  byId("failed").hidden = false;
  fill(byId("failures"), ["trial", "why", ...Object.keys(data.failed[0].settings)],
    data.failed.map((t) => ({ cells: [t.trial, t.error, ...Object.values(t.settings)] })));
}
