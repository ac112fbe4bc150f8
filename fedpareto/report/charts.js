// Scales, axes and marks that every chart shares.
const byId = (id) => document.getElementById(id);
const SVG = new Set(["svg", "g", "circle", "line", "path", "text", "rect", "title"]);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const SPOKEN = new Set(["aria-label", "title"]);
const SHAPES = ["circle", "square", "triangle"];

// Show a text as text: what cannot be seen in it, or moves what can, as its number.
function write(at, text) {
  at.textContent = visible(text);
}

function node(parent, name, attributes, text) {
  const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, SPOKEN.has(key) ? visible(value) : value);
  if (text !== undefined) write(made, text);
  if (parent) parent.appendChild(made);
  return made;
}

function ends(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return [low, high];
}

// Log where every value is positive and they span more than two decades.
function wantsLog(values) {
  const [low, high] = ends(values);
  return low > 0 && high / low > 100;
}

// The span of an axis: all of what must be seen, and of the rest what does not squash it.
function span(values, must, log, all) {
  const finite = Array.from(values).filter((v) => isFinite(v) && (!log || v > 0));
  let [low, high] = ends(finite.concat(must.filter((v) => isFinite(v) && (!log || v > 0))));
  if (low > high) return [0, 1];
  if (!all && !log && must.length) {
    const [first, last] = ends(must);
    finite.sort((a, b) => a - b);
    const most = Math.max(last, Math.min(finite[Math.floor(0.95 * (finite.length - 1))], first + 3 * (last - first || 1)));
    if (high - first > 1.3 * (most - first)) high = most;
    const least = Math.min(first, finite[Math.floor(0.02 * (finite.length - 1))]);
    if (last - low > 2 * (last - least)) low = least;
  }
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const pad = (high - low) * 0.04 || Math.abs(high) * 0.05 || 1;
  return [low >= 0 && low - pad < 0 && low < pad ? -pad / 2 : low - pad, high + pad];
}

function scale([low, high], log, from, to) {
  const f = log ? Math.log : (v) => v, back = log ? Math.exp : (v) => v, a = f(low), b = f(high);
  const at = (v) => from + ((f(v) - a) / (b - a)) * (to - from), value = (px) => back(a + ((px - from) / (to - from)) * (b - a));
  return { low, high, log, at, value };
}

function ticks(low, high, log, most) {
  if (log) return logTicks(low, high, most);
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw * 0.999);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Number(v.toPrecision(10)) || 0);
  return out;
}

function logTicks(low, high, most) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const many = (factors, every) => {
    const out = [];
    for (let e = first; e <= last; e += 1) if (e % every === 0) for (const f of factors) out.push(Number((f * 10 ** e).toPrecision(6)));
    return out.filter((v) => v >= low && v <= high);
  };
  const choices = [many([1, 2, 3, 5, 7], 1), many([1, 2, 5], 1), many([1, 3], 1), many([1], 1), many([1], 2), many([1], 4)];
  const found = choices.find((c) => c.length <= most + 1) || many([1], 10);
  return found.length >= 2 ? found : ticks(low, high, false, most).filter((v) => v > 0);
}

function tickText(v) {
  const size = Math.abs(v);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return v.toExponential().replace("e+", "e");
  for (const [least, unit, name] of [[1e12, 1e12, "T"], [1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]])
    if (size >= least) return `${Number((v / unit).toPrecision(5))}${name}`;
  return String(v);
}

// Axes, grid and labels on a fresh drawing that is as wide as its box; returns the scales and the drawing to add to.
function frame(box, height, across, upwards, words) {
  const W = Math.max(260, box.clientWidth), H = height, top = 26, bottom = 44, right = 14;
  const yTicks = ticks(upwards.span[0], upwards.span[1], upwards.log, Math.max(5, H / 55));
  const left = 14 + 7.2 * Math.max(2, ...yTicks.map((v) => tickText(v).length));
  const x = scale(across.span, across.log, left, W - right), y = scale(upwards.span, upwards.log, H - bottom, top);
  const svg = node(box, "svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": words });
  const xTicks = across.marks || ticks(across.span[0], across.span[1], across.log, Math.max(3, (W - left) / 70)).map((v) => [v, tickText(v)]);
  const room = (W - right - left) / Math.max(1, xTicks.length);
  for (const [v, say] of xTicks) {
    node(svg, "line", { x1: x.at(v), x2: x.at(v), y1: top, y2: H - bottom, class: "grid" });
    node(svg, "text", { x: x.at(v), y: H - bottom + 17, "text-anchor": "middle" }, across.marks ? cut(say, room) : say);
  }
  for (const v of yTicks) {
    node(svg, "line", { x1: left, x2: W - right, y1: y.at(v), y2: y.at(v), class: "grid" });
    node(svg, "text", { x: left - 7, y: y.at(v) + 4, "text-anchor": "end" }, tickText(v));
  }
  node(svg, "text", { x: W - right, y: H - 6, "text-anchor": "end", class: "axis" }, `${across.label}${across.log ? " (log)" : ""} →`);
  node(svg, "text", { x: 2, y: 14, class: "axis" }, `↑ ${upwards.label}${upwards.log ? " (log)" : ""}`);
  return { svg, x, y, W, H, left, right: W - right, top, bottom: H - bottom };
}

// A text as long as there is room for.
function cut(text, room) {
  const most = Math.max(2, Math.floor(room / 7.2));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// A canvas over a drawing, sharp on every screen.
function layer(box, W, H) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = node(box, "canvas", { width: Math.round(W * ratio), height: Math.round(H * ratio), "aria-hidden": "true" });
  canvas.style.width = `${W}px`;
  canvas.style.height = `${H}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

function mark(pen, shape, x, y, r) {
  if (shape === "square") return pen.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  if (shape !== "triangle") {
    pen.moveTo(x + r, y);
    return pen.arc(x, y, r, 0, 7);
  }
  pen.moveTo(x, y - r * 1.2);
  pen.lineTo(x + r * 1.15, y + r * 0.85);
  pen.lineTo(x - r * 1.15, y + r * 0.85);
  pen.closePath();
}

const stairs = (xy) => xy.map(([x, y], i) => (i ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)},${y.toFixed(1)}`)).join("");

function showTip(text, x, y) {
  const tip = byId("tip");
  tip.hidden = false;
  if (tip.textContent !== visible(text)) write(tip, text);
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, y + 14 + tip.offsetHeight > innerHeight ? y - 14 - tip.offsetHeight : y + 14)}px`;
}

const hideTip = () => { byId("tip").hidden = true; };

// Where the pointer is on a drawing, in its own units.
function spot(svg, event) {
  const box = svg.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

// Say what lies nearest to the pointer; marks are { x, y, say }.
function hover(svg, marks, reach = 40) {
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = spot(svg, event);
    let near = null, best = reach * reach;
    for (const m of marks) {
      const d = (m.x - x) ** 2 + (m.y - y) ** 2;
      if (d < best) [near, best] = [m, d];
    }
    if (near) showTip(near.say, event.clientX, event.clientY);
    else hideTip();
  });
  svg.addEventListener("pointerleave", hideTip);
}

// A table: rows are { cells, name, index }, a string standing left.
function fill(table, heads, rows) {
  table.replaceChildren();
  const head = node(node(table, "thead"), "tr");
  for (const h of heads) node(head, "th", { scope: "col" }, h);
  const body = node(table, "tbody");
  for (const { cells, attributes } of rows) {
    const tr = node(body, "tr", attributes);
    for (const c of cells) {
      const words = typeof c === "string" && !/^[-\d.e]+$/.test(c);
      node(tr, "td", words ? { class: "text" } : {}, typeof c === "string" ? c : short(c));
    }
  }
  return body;
}
