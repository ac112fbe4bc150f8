// Parallel coordinates: each trial a line through its settings and objectives; on a phone the axes lie and the line runs down.
let threads = null;

function dimensions() {
  const p = data.points;
  const settings = Object.keys(p.settings).filter((n) => Array.isArray(p.settings[n])).map((n) => `s:${n}`);
  return [...settings, ...data.objectives.map((o) => `o:${o.name}`)];
}

// One axis: numbers, or choices in their order.
function dimension(key) {
  const raw = key[0] === "s" ? data.points.settings[key.slice(2)] : null;
  if (raw && raw.some((v) => typeof v !== "number" && v !== null)) {
    const choices = [...new Set(raw.map(String))].sort();
    return { key, choices, log: false, values: raw.map((v) => choices.indexOf(String(v))), span: [-0.3, choices.length - 0.7] };
  }
  const values = numbers(key), finite = Array.from(values).filter(isFinite), asked = key[0] === "s" && data.settings[key.slice(2)].log;
  const log = finite.length > 0 && ends(finite)[0] > 0 && (wantsLog(finite) || asked);
  const o = objectiveAt(key), limit = o && o.limit !== null ? [o.limit] : [];
  const must = data.points.front.map((i) => values[i]).filter(isFinite).concat(limit);
  return { key, choices: null, log, values, span: span(values, must, log, false) };
}

function drawParallel() {
  const box = byId("parallel");
  box.replaceChildren();
  threads = null;
  const keys = size() ? dimensions() : [];
  if (keys.length < 2) return void node(box, "p", { class: "note" }, "Two settings or objectives that differ between trials are needed.");
  const W = Math.max(260, box.clientWidth), lying = W < 640, n = keys.length;
  const H = lying ? 58 * n - 6 : 320, first = lying ? 26 : 60, gap = lying ? 58 : (W - 2 * first) / (n - 1);
  const back = layer(box, W, H), pen = layer(box, W, H);
  const svg = node(box, "svg", { class: "over", width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "img",
    "aria-label": "settings and objectives of every trial" });
  const dims = keys.map((key, k) => {
    const d = dimension(key);
    return { ...d, at: first + gap * k, scale: lying ? scale(d.span, d.log, 14, W - 14) : scale(d.span, d.log, H - 14, 46) };
  });
  dims.forEach((d) => drawDimension(svg, d, lying, W, H, gap));
  box.style.height = `${H}px`;
  threads = { dims, lying, back, pen, W, H, svg };
  paintBackground();
  svg.addEventListener("pointermove", threadAt);
  svg.addEventListener("pointerleave", () => look(null));
  svg.addEventListener("click", (event) => {
    const i = nearestThread(...spot(svg, event));
    if (i !== null) choose(i);
  });
}

function endsOf(d) {
  const [low, high] = ends(Array.from(d.values).filter(isFinite));
  return [Math.max(low, d.span[0]), Math.min(high, d.span[1])];
}

function drawDimension(svg, d, lying, W, H, gap) {
  const goal = d.key[0] === "o", name = label(d.key) + (d.log ? " (log)" : "");
  const limit = goal && objectiveAt(d.key).limit;
  if (lying) {
    node(svg, "line", { x1: 14, x2: W - 14, y1: d.at, y2: d.at, class: "grid", "stroke-width": 1.5 });
    node(svg, "text", { x: 14, y: d.at - 10, class: "axis halo", "font-weight": goal ? 700 : 400 }, name);
    const marks = d.choices ? d.choices.map((c, k) => [k, c]) : endsOf(d).map((v) => [v, short(Number(v.toPrecision(3)))]);
    const side = (k) => (d.choices ? "middle" : k ? "end" : "start");
    const room = (W - 28) / marks.length;
    marks.forEach(([v, say], k) => node(svg, "text", { x: d.scale.at(v), y: d.at + 16, "text-anchor": side(k), class: "halo" }, d.choices ? cut(say, room) : say));
  } else {
    node(svg, "line", { x1: d.at, x2: d.at, y1: 46, y2: H - 14, class: "grid", "stroke-width": 1.5 });
    const low = d.at < 100 ? "start" : d.at > W - 100 ? "end" : "middle";
    const x = low === "start" ? 4 : low === "end" ? W - 4 : d.at;
    const text = node(svg, "text", { x, y: 22, "text-anchor": low, class: "axis", "font-weight": goal ? 700 : 400 }, cut(name, gap * 1.03));
    node(text, "title", {}, name);
    const marks = d.choices ? d.choices.map((c, k) => [k, c]) : ticks(d.span[0], d.span[1], d.log, 5).map((v) => [v, tickText(v)]);
    for (const [v, say] of marks) node(svg, "text", { x: d.at - 6, y: d.scale.at(v) + 4, "text-anchor": "end", class: "halo" }, cut(say, Math.min(gap - 8, d.at)));
  }
  if (limit !== false && limit !== null) {
    const at = d.scale.at(Math.max(d.span[0], Math.min(d.span[1], limit)));
    const line = lying ? { x1: at, x2: at, y1: d.at - 7, y2: d.at + 7 } : { x1: d.at - 7, x2: d.at + 7, y1: at, y2: at };
    node(svg, "line", { ...line, class: "own", "stroke-width": 3 });
  }
}

function corner(d, i) {
  const v = Math.max(d.span[0], Math.min(d.span[1], d.values[i])), px = d.scale.at(v);
  return threads.lying ? [px, d.at] : [d.at, px];
}

function threadPath(pen, i) {
  threads.dims.forEach((d, k) => {
    const [x, y] = corner(d, i);
    if (!isFinite(x) || !isFinite(y)) return;
    if (k) pen.lineTo(x, y);
    else pen.moveTo(x, y);
  });
}

function strokeThreads(pen, points, name, alpha, width) {
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour(name);
  pen.lineWidth = width;
  for (const i of points) {
    pen.beginPath();
    threadPath(pen, i);
    pen.stroke();
  }
}

// Trials that are not on the front, once: of very many an even sample.
function paintBackground() {
  const front = new Set(data.points.front), rest = Array.from({ length: size() }, (_, i) => i).filter((i) => !front.has(i));
  const every = Math.max(1, Math.ceil(rest.length / 1200)), kept = rest.filter((_, k) => k % every === 0);
  threads.back.clearRect(0, 0, threads.W, threads.H);
  strokeThreads(threads.back, kept, "other", kept.length > 400 ? 0.1 : 0.18, 1);
  const few = [front.size > 300 ? `300 of the ${front.size} points of the front` : "",
    every > 1 ? `${kept.length} of the ${rest.length} other trials` : ""];
  write(byId("parallel-note"), few.some(Boolean) ? `Drawn are ${few.filter(Boolean).join(" and ")}, evenly chosen.` : "");
}

function paintParallel() {
  if (!threads) return;
  const { pen, W, H } = threads, inside = insideNow(), front = thinned(data.points.front, 300, null);
  const any = front.some((i) => data.points.feasible[i]);
  pen.clearRect(0, 0, W, H);
  strokeThreads(pen, front.filter((i) => any && !inside[i]), "front", 0.08, 1);
  strokeThreads(pen, front.filter((i) => !any || inside[i]), "front", front.length > 150 ? 0.3 : 0.55, 1.3);
  if (state.best !== null) strokeThreads(pen, [state.best], "pick", 1, 3);
  if (state.picked !== null) strokeThreads(pen, [state.picked], "ring", 1, 2.5);
  if (state.near !== null) strokeThreads(pen, [state.near], "ring", 1, 1.5);
}

// The line of the front that passes nearest to a spot.
function nearestThread(x, y) {
  const { dims, lying } = threads, along = lying ? y : x, aside = lying ? x : y;
  const k = dims.findIndex((d, j) => j < dims.length - 1 && along >= d.at && along <= dims[j + 1].at);
  if (k < 0) return null;
  const share = (along - dims[k].at) / (dims[k + 1].at - dims[k].at);
  let near = null, best = 14;
  for (const i of data.points.front) {
    const a = corner(dims[k], i)[lying ? 0 : 1], b = corner(dims[k + 1], i)[lying ? 0 : 1];
    const d = Math.abs(a + share * (b - a) - aside);
    if (d < best) [near, best] = [i, d];
  }
  return near;
}

function threadAt(event) {
  look(nearestThread(...spot(threads.svg, event)), event.clientX, event.clientY);
}
