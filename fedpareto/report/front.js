// The front on two chosen axes: every trial on a canvas, limits to drag and rings above it.
let plot = null;

function axisOf(key, side) {
  const values = numbers(key), o = objectiveAt(key), finite = Array.from(values).filter(isFinite);
  const can = finite.length > 0 && ends(finite)[0] > 0;
  const log = can && (state.log[side] ?? (wantsLog(finite) || (key[0] === "s" && data.settings[key.slice(2)].log)));
  const must = data.points.front.map((i) => values[i]).filter(isFinite).concat(o && o.limit !== null ? [o.limit] : []);
  const all = state.all || key === "t:trial"; // the number of a trial is never an outlier
  return { key, values, log, can, span: span(values, must, log, all), full: span(values, must, log, true), label: label(key) };
}

// Of three or more objectives, the budgets of the one that is on no axis.
function budgets() {
  const key = state.third && `o:${state.third}`;
  if (!key || !objectiveAt(state.x) || !objectiveAt(state.y)) return [];
  const sorted = Array.from(data.points.front, (i) => numbers(key)[i]).filter(isFinite).sort((a, b) => a - b);
  if (!sorted.length) return [];
  return [...new Set([1 / 3, 2 / 3, 1].map((q) => roundedUp(sorted[Math.ceil(q * sorted.length - 1e-9) - 1])))];
}

function roundedUp(v) {
  if (!(v > 0)) return v;
  const unit = 10 ** (Math.floor(Math.log10(v)) - 2);
  return Math.max(v, Number((Math.ceil(v / unit - 1e-9) * unit).toPrecision(4)));
}

function levelOf(i, levels) {
  return levels.length ? Math.max(0, levels.findIndex((b) => numbers(`o:${state.third}`)[i] <= b)) : 2;
}

function drawFront() {
  const box = byId("front");
  box.replaceChildren();
  plot = null;
  if (!size()) return void node(box, "p", {}, "No trial was measured.");
  const across = axisOf(state.x, "x"), upwards = axisOf(state.y, "y");
  const height = Math.max(320, Math.min(540, box.clientWidth * 0.72), Math.min(840, box.clientHeight)); // as tall as what stands beside it
  const drawn = frame(box, height, across, upwards, `${upwards.label} against ${across.label}, every trial`);
  const pen = layer(box, drawn.W, drawn.H);
  const over = node(box, "svg", { class: "over", width: drawn.W, height: drawn.H, viewBox: `0 0 ${drawn.W} ${drawn.H}` });
  plot = { ...drawn, pen, over, across, upwards, levels: budgets(), handles: [] };
  placePoints();
  drawOver();
  drawLegend();
  byId("x-log").disabled = !across.can;
  byId("y-log").disabled = !upwards.can;
  byId("x-log").checked = across.log;
  byId("y-log").checked = upwards.log;
}

// Where every point stands; one beyond the axes stands at their edge.
function placePoints() {
  const n = size(), { x, y, left, right, top, bottom } = plot;
  plot.px = new Float64Array(n);
  plot.py = new Float64Array(n);
  plot.out = new Uint8Array(n);
  for (let i = 0; i < n; i++) {
    const px = x.at(plot.across.values[i]), py = y.at(plot.upwards.values[i]);
    plot.px[i] = Math.min(right, Math.max(left, px));
    plot.py[i] = Math.min(bottom, Math.max(top, py));
    if (plot.px[i] !== px || plot.py[i] !== py) plot.out[i] = isFinite(px) && isFinite(py) ? 1 : 0;
  }
  const beyond = plot.out.reduce((sum, v) => sum + v, 0);
  byId("all-label").hidden = !beyond && !state.all;
  byId("beyond").hidden = !beyond;
  const words = beyond === 1 ? "trial lies beyond the axes and stands" : "trials lie beyond the axes and stand";
  write(byId("beyond"), `${beyond} ${words} at the edge.`);
}

function drawOver() {
  const { over, left, right, top, bottom } = plot;
  plot.area = node(over, "g", { class: "points", tabindex: 0, role: "application", id: "points", "aria-roledescription": "scatter plot",
    "aria-label": "Trials. Left and right arrows move along the front, up and down through all trials, Enter picks, Escape lets go." });
  node(plot.area, "rect", { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 12, fill: "transparent" });
  const ring = (id, r, style) => node(over, "circle", { id, r, style: `fill:none;pointer-events:none;${style}` });
  plot.best = ring("ring-best", 10, "stroke:var(--pick);stroke-width:3");
  plot.knee = ring("ring-knee", 8, "stroke:var(--pick);stroke-width:2;stroke-dasharray:2 2");
  plot.picked = ring("ring-pick", 14, "stroke:var(--ring);stroke-width:2;stroke-dasharray:4 3");
  plot.near = ring("ring-near", 7, "stroke:var(--ring);stroke-width:2");
  if (objectiveAt(state.y)) drawLimit(objectiveAt(state.y), false);
  if (objectiveAt(state.x) && state.x !== state.y) drawLimit(objectiveAt(state.x), true);
  over.addEventListener("pointermove", pointAt);
  over.addEventListener("pointerleave", () => look(null));
  over.addEventListener("click", (event) => {
    const rule = event.target.closest(".limit"), i = nearest(...spot(over, event), rule ? 8 : 24);
    if (i !== null && !(rule && plot.moved)) choose(i);
  });
  plot.area.addEventListener("keydown", walk);
  plot.area.addEventListener("blur", () => look(null));
}

function nearest(x, y, reach) {
  let near = null, best = reach * reach;
  const front = new Set(data.points.front);
  for (let i = 0; i < size(); i++) {
    const d = (plot.px[i] - x) ** 2 + (plot.py[i] - y) ** 2 - (front.has(i) ? 4 : 0);
    if (d < best) [near, best] = [i, d];
  }
  return near;
}

function pointAt(event) {
  if (plot.dragging) return;
  look(nearest(...spot(plot.over, event), 24), event.clientX, event.clientY);
}

// Keys on the points: along the front, or through all trials from left to right.
function walk(event) {
  const along = { ArrowRight: [1, true], ArrowLeft: [-1, true], ArrowUp: [1, false], ArrowDown: [-1, false] }[event.key];
  const home = { Home: 0, End: -1 }[event.key];
  if (event.key === "Escape") return void choose(null);
  if ((event.key === "Enter" || event.key === " ") && state.near !== null) {
    event.preventDefault();
    return void choose(state.near);
  }
  if (!along && home === undefined) return;
  event.preventDefault();
  const from = along && !along[1] ? Array.from({ length: size() }, (_, i) => i) : data.points.front;
  const drawn = from.filter((i) => isFinite(plot.px[i]) && isFinite(plot.py[i]));
  const order = drawn.sort((a, b) => plot.px[a] - plot.px[b] || plot.py[b] - plot.py[a]);
  const here = state.near ?? shownIndex(), at = order.indexOf(here);
  const beside = order.findIndex((i) => plot.px[i] >= (here === null ? -Infinity : plot.px[here]));
  const start = at >= 0 ? at : beside - (along && along[0] > 0 ? 1 : 0);
  const next = along ? Math.max(0, Math.min(order.length - 1, start + along[0])) : (home + order.length) % order.length;
  const box = plot.over.getBoundingClientRect(), i = order[next];
  if (i !== undefined) look(i, box.left + plot.px[i], box.top + plot.py[i]);
}

// A limit as a line to drag, by mouse, finger or arrow keys.
function drawLimit(o, vertical) {
  const { over, left, right, top, bottom } = plot;
  if (o.limit !== null) {
    const at = vertical ? plot.x.at(o.limit) : plot.y.at(o.limit);
    const own = vertical ? { x1: at, x2: at, y1: top, y2: bottom } : { x1: left, x2: right, y1: at, y2: at };
    node(over, "line", { ...own, class: "own" });
  }
  const g = node(over, "g", { class: "limit", tabindex: 0, role: "slider", id: vertical ? "limit-x" : "limit-y",
    "aria-orientation": vertical ? "horizontal" : "vertical", "aria-label": `limit of ${o.name}` });
  const line = { x1: 0, x2: vertical ? 0 : right - left, y1: 0, y2: vertical ? bottom - top : 0 };
  node(g, "line", { ...line, class: "rule" });
  node(g, "line", { ...line, class: "hit" });
  const shape = vertical ? { x: -6, y: -3, width: 12, height: 18 } : { x: -5, y: -6, width: 18, height: 12 };
  const knob = node(g, "rect", { ...shape, rx: 4, class: "knob" });
  const text = node(g, "text", { y: -9, style: "pointer-events:none" });
  const handle = { o, vertical, g, text, knob, at: 0, scale: vertical ? plot.x : plot.y };
  plot.handles.push(handle);
  g.addEventListener("pointerdown", (event) => {
    g.setPointerCapture(event.pointerId);
    plot.dragging = true;
    plot.moved = false;
    plot.from = spot(over, event);
    look(null);
  });
  g.addEventListener("pointermove", (event) => {
    if (plot.dragging && Math.hypot(...spot(over, event).map((v, k) => v - plot.from[k])) > 3) plot.moved = true;
    if (plot.moved && plot.dragging && g.hasPointerCapture(event.pointerId)) setLimit(o, handle.scale.value(spot(over, event)[vertical ? 0 : 1]));
  });
  for (const end of ["pointerup", "pointercancel"]) g.addEventListener(end, () => { plot.dragging = false; });
  g.addEventListener("keydown", (event) => nudge(event, handle));
  return handle;
}

function nudge(event, { o, vertical, scale: s }) {
  const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
  if (steps === undefined && !["Home", "End", "Delete", "Escape"].includes(event.key)) return;
  event.preventDefault();
  if (steps === undefined) return void setLimit(o, event.key === "Home" ? roomOf(o).low : null);
  const length = vertical ? plot.right - plot.left : plot.top - plot.bottom;
  setLimit(o, s.value(s.at(Math.min(limitOf(o) ?? s.high, s.high)) + (steps * length) / 100));
}

function paintLimits() {
  for (const handle of plot.handles) {
    const { o, vertical, g, text, scale: s } = handle, set = limitOf(o);
    const at = handle.at = s.at(Math.max(s.low, Math.min(s.high, set ?? s.high)));
    g.setAttribute("transform", vertical ? `translate(${at} ${plot.top})` : `translate(${plot.left} ${at})`);
    g.classList.toggle("parked", set === null);
    const words = set === null ? `${o.name}: no limit` : `${o.name} ≤ ${short(set)}`;
    write(text, words);
    const values = { valuemin: s.low, valuemax: Math.min(s.high, o.limit ?? Infinity), valuenow: set ?? s.high, valuetext: words };
    for (const [key, value] of Object.entries(values)) g.setAttribute(`aria-${key}`, value);
  }
  placeLimits();
}

// Boxes are [left, top, right, bottom] on the drawing. A knob gives way to the one before it, a label to knobs, ticks, titles and other labels.
const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

function placeLimits() {
  const boxOf = (t) => t.getBBox(), corners = (b) => [b.x, b.y, b.x + b.width, b.y + b.height];
  plot.texts ??= [...plot.svg.querySelectorAll("text")].map(boxOf).map(corners);
  const taken = [...plot.texts];
  for (const handle of plot.handles) taken.push(placeKnob(handle, taken));
  plot.pen.font = "600 12px system-ui, sans-serif";
  for (const handle of plot.handles) taken.push(placeLabel(handle, plot.pen.measureText(handle.text.textContent).width, taken));
}

function placeKnob({ vertical, knob, at }, taken) {
  const box = (down) => (vertical ? [at - 8, plot.top + down - 2, at + 8, plot.top + down + 20] : [plot.left - 7, at - 8, plot.left + 14, at + 8]);
  const down = [-3, 24, 50].find((d) => !vertical || !taken.some((b) => meet(box(d), b))) ?? 50;
  if (vertical) knob.setAttribute("y", down);
  return box(vertical ? down : 0);
}

// Beside the line: above the drawing or under its top for an upright one, above or below for one that lies; the first place that is free.
function placesOf({ vertical, at }, wide) {
  const { left, right, top } = plot, ends = [right - 6 - wide, ...[0.75, 0.5, 0.25].map((part) => left + 16 + part * (right - left - wide - 22)), left + 16];
  if (!vertical) return [at < top + 24 ? [17, -9] : [-9, 17], [34, 51]].flatMap((rows) => ends.flatMap((x) => rows.map((dy) => [x, at + dy])));
  const rows = [17, 38, 58, 78].map((dy) => (dy === 17 ? top - 9 : top + dy - 17));
  return rows.flatMap((y) => [at + (y < top ? 8 : -12) - wide, at + (y < top ? -8 : 12)].map((x) => [x, y]));
}

function placeLabel(handle, wide, taken) {
  const box = ([x, y]) => [x - 2, y - 13, x + wide + 2, y + 5], on = ([x, y]) => x >= 0 && x + wide <= plot.W && y >= 12 && y <= plot.bottom - 4;
  const places = placesOf(handle, wide).filter(on), free = places.find((p) => !taken.some((b) => meet(box(p), b)));
  const [x, y] = free ?? places[0] ?? [Math.max(0, Math.min(handle.at, plot.W - wide)), plot.top - 9];
  const from = handle.vertical ? [handle.at, plot.top] : [plot.left, handle.at];
  handle.text.setAttribute("x", x - from[0]);
  handle.text.setAttribute("y", y - from[1]);
  return box([x, y]);
}

const LEVELS = ["one", "two", "three"];

// The lowest points of some, from left to right, on the two axes.
function staircase(points) {
  const xs = plot.across.values, ys = plot.upwards.values, out = [];
  for (const i of points.filter((j) => isFinite(xs[j]) && isFinite(ys[j])).sort((a, b) => xs[a] - xs[b] || ys[a] - ys[b]))
    if (!out.length || ys[i] < ys[out[out.length - 1]]) out.push(i);
  return out;
}

function strokeCurve(points, name, dashed, alpha) {
  const steps = staircase(points);
  if (!steps.length) return;
  const { pen } = plot;
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour(name);
  pen.lineWidth = 1.8;
  pen.setLineDash(dashed);
  const from = [plot.px[steps[0]], plot.top], xy = steps.map((i) => [plot.px[i], plot.py[i]]);
  pen.stroke(new Path2D(`${stairs([from, ...xy])}H${plot.right}`));
  pen.setLineDash([]);
}

// One curve; of three objectives, one for each budget of the third; of other measures, the least of both among what holds the limits.
function paintCurves(inside) {
  const front = data.points.front, left = front.filter((i) => inside[i]);
  const both = objectiveAt(state.x) && objectiveAt(state.y);
  if (!both) {
    if ("om".includes(state.x[0]) && "om".includes(state.y[0]))
      strokeCurve(Array.from(inside.keys()).filter((i) => inside[i]), "three", [3, 4], 0.7);
    return;
  }
  const levels = plot.levels.length ? plot.levels : [Infinity], of = (i) => (plot.levels.length ? numbers(`o:${state.third}`)[i] : 0);
  levels.forEach((b, k) => {
    const name = plot.levels.length ? LEVELS[k] : "three", dashed = [[], [8, 4], [2, 3]][plot.levels.length ? k : 0];
    if (left.length < front.length) strokeCurve(front.filter((i) => of(i) <= b), name, dashed, 0.18);
    strokeCurve(left.filter((i) => of(i) <= b), name, dashed, 0.85);
  });
}

function paintPoints(keep, style) {
  const { pen } = plot;
  pen.beginPath();
  for (let i = 0; i < size(); i++) {
    if (!keep(i) || !isFinite(plot.px[i]) || !isFinite(plot.py[i])) continue;
    mark(pen, style.shape, plot.px[i], plot.py[i], style.r * (plot.out[i] ? 0.7 : 1));
  }
  pen.globalAlpha = style.alpha;
  pen.fillStyle = pen.strokeStyle = colour(style.colour);
  pen.lineWidth = 1;
  if (style.hollow) pen.stroke();
  else pen.fill();
}

// All that changes while limits move; the axes stay.
function paintFront() {
  if (!plot) return;
  const { pen, W, H, levels } = plot, inside = insideNow(), onFront = new Uint8Array(size()), ok = data.points.feasible;
  for (const i of data.points.front) onFront[i] = 1;
  const many = size() > 2000, r = many ? 1.8 : 3.2, shape = many ? "square" : "circle";
  pen.clearRect(0, 0, W, H);
  paintPoints((i) => !onFront[i] && !ok[i], { shape, colour: "other", r, alpha: 0.5, hollow: true });
  paintPoints((i) => !onFront[i] && ok[i] && !inside[i], { shape, colour: "other", r, alpha: 0.13 });
  paintPoints((i) => !onFront[i] && inside[i], { shape, colour: "other", r, alpha: many ? 0.35 : 0.55 });
  paintCurves(inside);
  const any = data.points.front.some((i) => ok[i]);
  for (let k = 0; k < 3; k++) {
    const mine = (i) => onFront[i] && levelOf(i, levels) === k;
    const style = { shape: levels.length ? SHAPES[k] : "circle", colour: LEVELS[k], r: data.points.front.length > 1000 ? 3 : 4.6 };
    paintPoints((i) => mine(i) && any && !inside[i], { ...style, alpha: 0.18 });
    paintPoints((i) => mine(i) && (inside[i] || !any), { ...style, alpha: 1, hollow: !any });
  }
  paintLimits();
  paintRings();
}

function paintRings() {
  if (!plot) return;
  const knee = state.knee === state.best ? null : state.knee;
  const rings = [[plot.best, state.best], [plot.knee, knee], [plot.picked, state.picked], [plot.near, state.near]];
  for (const [ring, i] of rings) {
    const seen = i !== null && isFinite(plot.px[i]) && isFinite(plot.py[i]);
    ring.style.display = seen ? "" : "none";
    if (!seen) continue;
    ring.setAttribute("cx", plot.px[i]);
    ring.setAttribute("cy", plot.py[i]);
    ring.setAttribute("data-trial", data.points.trial[i]);
    ring.setAttribute("data-index", i);
  }
}

function drawLegend() {
  const box = byId("legend");
  box.replaceChildren();
  const item = (text, shape, attributes) => {
    const span = node(box, "span"), svg = node(span, "svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    const forms = { square: ["rect", { x: 3.5, y: 3.5, width: 9, height: 9 }], triangle: ["path", { d: "M8 2.5L14 13H2Z" }],
      circle: ["circle", { cx: 8, cy: 8, r: 5 }] };
    node(svg, forms[shape][0], { ...forms[shape][1], ...attributes });
    span.append(visible(text));
  };
  const third = objectiveAt(`o:${state.third}`);
  const budget = (b, k) => item(`front, ${third.name} ≤ ${short(b)}`, SHAPES[k], { fill: `var(--${LEVELS[k]})` });
  if (plot.levels.length) plot.levels.forEach(budget);
  else item("Pareto front", "circle", { fill: "var(--three)" });
  item("other trials", "circle", { fill: "var(--other)", opacity: 0.6 });
  if (data.points.feasible.includes(0)) item("outside the study's limits", "circle", { fill: "none", stroke: "var(--other)" });
  item("recommended", "circle", { fill: "none", stroke: "var(--pick)", "stroke-width": 3 });
  item("knee", "circle", { fill: "none", stroke: "var(--pick)", "stroke-width": 2, "stroke-dasharray": "2 2" });
  item("your pick", "circle", { fill: "none", stroke: "var(--ring)", "stroke-width": 2, "stroke-dasharray": "3 2" });
  if ("om".includes(state.x[0]) && "om".includes(state.y[0])) node(box, "span", {}, "↙ lower left is better");
}
