// What moved what: the share of each setting in a measure's spread, and a slice of the trials along each setting.
let slices = [];

const ofMeasure = (key) => (objectiveAt(key) ? objectiveAt(key).measure : key.slice(2));
const importanceOf = (key) => data.importance.find((one) => one.measure === ofMeasure(key));

function drawSlices() {
  const varied = size() ? dimensions().filter((key) => key[0] === "s") : [];
  const groups = quantities().filter(([name]) => name === "objectives" || name === "other measures");
  const keys = groups.flatMap(([, some]) => some);
  slices = [];
  byId("moves-card").hidden = !varied.length || !keys.length;
  if (byId("moves-card").hidden) return;
  if (!keys.includes(state.moved)) state.moved = keys[0];
  options(byId("moved"), groups, state.moved, label);
  const found = importanceOf(state.moved), shares = found && found.holds ? found.total : null;
  drawShares(found);
  const order = shares ? varied.sort((a, b) => shares[b.slice(2)] - shares[a.slice(2)]) : varied;
  byId("slices").replaceChildren();
  slices = order.map((key) => drawSlice(key, dimension(state.moved)));
}

// One bar a setting: by itself dark, with others light.
function drawShares(found) {
  const box = byId("shares-moved");
  box.replaceChildren();
  write(byId("moved-words"), movedWords(found));
  if (!found || !found.holds) return;
  for (const name of Object.keys(found.total).sort((a, b) => found.total[b] - found.total[a])) {
    const alone = found.alone[name], total = found.total[name], row = node(box, "div", { class: "share-row" });
    node(row, "span", {}, name);
    const rail = node(row, "div", { class: "share", "aria-hidden": "true" });
    node(rail, "i", { style: `width:${100 * total}%` });
    node(rail, "b", { style: `width:${100 * alone}%` });
    node(row, "small", {}, `${Math.round(100 * alone)} % alone, ${Math.round(100 * total)} % with others`);
  }
}

function movedWords(found) {
  const name = label(state.moved);
  if (!found) return `Each picture shows ${name} along one setting. Which setting weighs most is said of objectives and limits, from ${data.fewest} trials on.`;
  const told = `${Math.round(100 * found.explained)} % of the spread of trials that it had not seen`;
  if (!found.holds) return `Which setting weighs most cannot be told yet: a model of ${name} explains only ${told}.`;
  const log = found.log ? " (by its logarithm)" : "";
  return `How much of the spread of ${name}${log} over the whole space comes from each setting: dark by itself, light together with others. `
    + `An estimate (Sobol' indices of a random forest, as in fANOVA); the forest explains ${told}.`;
}

function drawSlice(key, goal) {
  const d = dimension(key), box = node(byId("slices"), "div", { class: "chart layered slice" });
  const across = { span: d.span, log: d.log, label: d.key.slice(2), marks: d.choices && d.choices.map((c, k) => [k, c]) };
  const drawn = frame(box, 200, across, { span: goal.span, log: goal.log, label: label(state.moved) }, `${label(state.moved)} against ${d.key.slice(2)}`);
  box.style.height = `${drawn.H}px`;
  const back = layer(box, drawn.W, drawn.H), pen = layer(box, drawn.W, drawn.H);
  const over = node(box, "svg", { class: "over", width: drawn.W, height: drawn.H, viewBox: `0 0 ${drawn.W} ${drawn.H}`, "aria-hidden": "true" });
  const held = ([low, high], v) => Math.max(low, Math.min(high, v));
  const at = (i) => [drawn.x.at(held(d.span, d.values[i])), drawn.y.at(held(goal.span, goal.values[i]))];
  const slice = { ...drawn, back, pen, at };
  const front = new Set(data.points.front);
  dots(slice, back, Array.from({ length: size() }, (_, i) => i).filter((i) => !front.has(i)), "other", size() > 2000 ? 1.4 : 2.4, 0.4);
  const nearest = (event) => {
    const [x, y] = spot(over, event);
    let near = null, best = 24 * 24;
    for (let i = 0; i < size(); i++) {
      const [px, py] = at(i), far = (px - x) ** 2 + (py - y) ** 2 - (front.has(i) ? 4 : 0);
      if (far < best) [near, best] = [i, far];
    }
    return near;
  };
  over.addEventListener("pointermove", (event) => look(nearest(event), event.clientX, event.clientY));
  over.addEventListener("pointerleave", () => look(null));
  over.addEventListener("click", (event) => {
    const i = nearest(event);
    if (i !== null) choose(i);
  });
  return slice;
}

function dots(slice, pen, points, name, r, alpha) {
  pen.globalAlpha = alpha;
  pen.fillStyle = colour(name);
  pen.beginPath();
  for (const i of points) {
    const [x, y] = slice.at(i);
    if (isFinite(x) && isFinite(y)) mark(pen, "circle", x, y, r);
  }
  pen.fill();
}

// What changes while limits move: the front, and the rings.
function paintSlices() {
  const inside = insideNow(), front = data.points.front, any = front.some((i) => data.points.feasible[i]);
  for (const slice of slices) {
    const { pen, W, H } = slice;
    pen.clearRect(0, 0, W, H);
    dots(slice, pen, front.filter((i) => any && !inside[i]), "front", 3.2, 0.18);
    dots(slice, pen, front.filter((i) => !any || inside[i]), "front", 3.2, 0.9);
    for (const [i, name] of [[state.best, "pick"], [state.picked, "ring"], [state.near, "ring"]]) {
      const [x, y] = i === null ? [NaN, NaN] : slice.at(i);
      if (!isFinite(x) || !isFinite(y)) continue;
      pen.beginPath();
      mark(pen, "circle", x, y, 6.5);
      pen.globalAlpha = 1;
      pen.lineWidth = 2.2;
      pen.strokeStyle = colour(name);
      pen.stroke();
    }
  }
}
