// What the reader has chosen, and what follows when it changes.
const state = { prefer: "", x: null, y: null, third: null, log: { x: null, y: null }, all: false, limits: table(), pick: null, picked: null, best: null, knee: null,
  near: null, inside: null, worst: null, moved: null, more: false, shown: undefined };
const shownIndex = () => state.picked ?? state.best;
const insideNow = () => state.inside;
const limitOf = (o) => state.limits[o.name] ?? o.limit;

// How far a limit can usefully move: from the least on the front to the study's own limit, or to the most that was measured.
function roomOf(o) {
  const [low, high] = ends(data.points.front.map((i) => objectiveOf(i, o)).filter((v) => v !== null));
  return { low, high: o.limit ?? Math.max(high, ends(Array.from(numbers(`o:${o.name}`)).filter(isFinite))[1]) };
}

// The study's own limits must hold, so a limit here can only be tighter; beyond them, or beyond every trial, it is let go.
function setLimit(o, value) {
  const v = value === null ? null : Number(value.toPrecision(4));
  const looser = v !== null && o.limit !== null && v > o.limit;
  byId("limit-words").hidden = !looser;
  if (looser) write(byId("limit-words"), `${o.name} stays at most ${short(o.limit)}, the study's own limit: trials beyond it count as failing it. `
    + "A looser one belongs in the study file.");
  if (v === null || !isFinite(v) || v >= roomOf(o).high) delete state.limits[o.name];
  else state.limits[o.name] = v;
  soon();
}

function choose(i) {
  state.pick = i === null ? null : nameOf(i);
  refresh();
}

// Ring a point and say what it is.
function look(i, x, y) {
  if (i === null) hideTip();
  else showTip(describe(i), x, y);
  if (i === state.near) return;
  state.near = i;
  paintRings();
  paintParallel();
  paintSlices();
}

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    refresh();
  });
}

// Follow a change of limits or pick: paint again, and say again what is said of the chosen point.
function refresh() {
  const { index, knee: middle, why } = recommend(state.limits, state.prefer);
  state.best = index;
  state.knee = middle;
  state.picked = state.pick === null ? null : indexOf(state.pick);
  state.inside = insideOf(state.limits);
  paintFront();
  paintParallel();
  paintSlices();
  paintTable();
  paintLimitRows();
  const i = shownIndex();
  showChoice(i, why);
  write(byId("commands"), commandsOf());
  if (i === state.shown) return;
  state.shown = i;
  for (const of of document.querySelectorAll(".of")) write(of, i === null ? "" : `of ${title(i)}`);
  showPrivacy(i);
  showCost(i);
  drawClients(i);
  showSettings(i);
  showAudits(i);
}

function options(select, groups, chosen, say) {
  select.replaceChildren();
  for (const [name, keys] of groups) {
    const parent = name ? node(select, "optgroup", { label: name }) : select;
    for (const key of keys) node(parent, "option", { value: key }, say(key));
  }
  select.value = chosen;
}

function drawControls() {
  const groups = quantities(), all = groups.flatMap(([, keys]) => keys), goals = data.objectives.map((o) => `o:${o.name}`);
  if (!all.includes(state.y)) state.y = goals[0];
  if (!all.includes(state.x)) state.x = goals[1] || "t:trial";
  options(byId("y-axis"), groups, state.y, label);
  options(byId("x-axis"), groups, state.x, label);
  const left = data.objectives.map((o) => o.name).filter((n) => ![state.x, state.y].includes(`o:${n}`));
  const both = objectiveAt(state.x) && objectiveAt(state.y) && state.x !== state.y;
  state.third = both && left.length ? (left.includes(state.third) ? state.third : left[0]) : null;
  byId("third-label").hidden = !state.third;
  options(byId("third"), [["", left]], state.third, (n) => n);
}

// A slider and a number for the limit of each objective.
function drawLimitRows() {
  const box = byId("limit-rows");
  box.replaceChildren();
  byId("limits").hidden = !data.points.front.some((i) => data.points.feasible[i]);
  const beside = data.limits.map((l) => l.heading).join(" and ");
  write(byId("beside"), beside ? `Every point inside also holds ${beside}.` : "");
  for (const [j, o] of data.objectives.entries()) {
    const row = node(box, "div", { class: "limit-row", "data-name": o.name });
    const own = o.limit === null ? "" : ` (study: ≤ ${short(o.limit)})`;
    node(row, "label", { for: `limit-of-${j}` }, `${o.name}${own}`);
    const slider = node(row, "input", { type: "range", min: 0, max: 1000, "aria-label": `limit of ${o.name}, slider` });
    const number = node(row, "input", { type: "number", step: "any", id: `limit-of-${j}`, placeholder: "no limit" });
    slider.addEventListener("input", () => setLimit(o, slider.value === "1000" ? null : railOf(o).value(Number(slider.value))));
    number.addEventListener("change", () => setLimit(o, number.value === "" ? null : Number(number.value)));
  }
}

// What to make least: left to the rule, an objective, or the knee.
function drawPrefer() {
  const names = data.objectives.map((o) => o.name), say = (n) => ({ "": "by the rule: least loss within limits, else the knee", knee: "the knee" }[n] ?? `least ${n}`);
  options(byId("prefer"), [["", ["", ...names, ...(names.includes("knee") ? [] : ["knee"])]]], state.prefer, say);
}

function railOf(o) {
  const room = roomOf(o), log = room.low > 0 && room.high / room.low > 100;
  return scale([room.low, room.high > room.low ? room.high : room.low + 1], log, 0, 1000);
}

function paintLimitRows() {
  for (const o of data.objectives) {
    const row = [...byId("limit-rows").children].find((r) => r.dataset.name === o.name), set = limitOf(o);
    if (!row) continue;
    const [, slider, number] = row.children;
    slider.value = set === null ? 1000 : railOf(o).at(Math.max(set, railOf(o).low));
    slider.setAttribute("aria-valuetext", set === null ? "no limit" : short(set));
    number.value = set === null ? "" : Number(set.toPrecision(6));
  }
  byId("reset").hidden = !Object.keys(state.limits).length;
}

// Draw all of it anew: at the start, for a new width, other colours, other axes or newer rows.
function draw() {
  tell(byId("summary"), data.summary);
  write(byId("proxies"), data.proxies.join(" "));
  write(byId("made"), `Made with ${data.made}.`);
  write(byId("file"), data.file);
  byId("file-part").hidden = !data.file;
  byId("commands-part").hidden = !data.commands.length;
  byId("promised").hidden = !data.privacy.length;
  const of = `the study's recommended point, ${title(data.points.recommended)}`;
  write(byId("promised").firstElementChild, `What is promised of ${of}, and what is not`);
  byId("promises").replaceChildren();
  for (const line of data.privacy) tell(node(byId("promises"), "li"), line);
  plot = threads = null;
  slices = [];
  state.shown = undefined;
  state.near = null;
  drawControls();
  drawLimitRows();
  drawPrefer();
  refresh();
  drawFront();
  drawParallel();
  drawSlices();
  drawCurve();
  drawTable();
  drawFailed();
  drawSplit();
  drawWords();
  refresh();
  cue();
}

async function copy(button, text) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = node(document.body, "textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = said; }, 1200);
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  write(byId("theme"), name === "dark" ? "Light" : "Dark");
  byId("theme").setAttribute("aria-label", `${name === "dark" ? "light" : "dark"} colours`);
}

function remembered(value) {
  try {
    if (value) localStorage.setItem("fedpareto-theme", value);
    return localStorage.getItem("fedpareto-theme");
  } catch {
    return null;
  }
}

function wire() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(remembered() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { setTheme(remembered() || (dark.matches ? "dark" : "light")); draw(); });
  byId("theme").addEventListener("click", () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remembered(other);
    setTheme(other);
    draw();
  });
  for (const side of ["x", "y"]) {
    byId(`${side}-axis`).addEventListener("change", (event) => {
      state[side] = event.target.value;
      state.log[side] = null;
      drawControls();
      drawFront();
      refresh();
    });
    byId(`${side}-log`).addEventListener("change", (event) => { state.log[side] = event.target.checked; drawFront(); refresh(); });
  }
  byId("third").addEventListener("change", (event) => { state.third = event.target.value; drawFront(); refresh(); });
  byId("all").addEventListener("change", (event) => { state.all = event.target.checked; drawFront(); refresh(); });
  byId("moved").addEventListener("change", (event) => { state.moved = event.target.value; drawSlices(); paintSlices(); });
  byId("worst").addEventListener("change", (event) => { state.worst = event.target.value; drawClients(shownIndex()); });
  byId("reset").addEventListener("click", () => { state.limits = table(); byId("limit-words").hidden = true; refresh(); });
  byId("prefer").addEventListener("change", (event) => { state.prefer = event.target.value; refresh(); });
  byId("against").addEventListener("click", () => {
    Object.assign(state, againstAxes(), { log: { x: null, y: null } });
    drawControls();
    drawFront();
    refresh();
    byId("front-card").scrollIntoView();
  });
  byId("audits-every")?.addEventListener("change", () => showAudits(state.shown));
  byId("unpick").addEventListener("click", () => choose(null));
  byId("more").addEventListener("click", () => { state.more = true; drawTable(); paintTable(); cue(); });
  wireWords();
  for (const name of ["toml", "python", "commands", "file"])
    byId(`copy-${name}`).addEventListener("click", (event) => copy(event.target, byId(name).textContent));
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; draw(); } });
}

// A live page asks for newer data every second and keeps what the reader has chosen.
function follow(url) {
  let tag = null, text = null;
  const status = byId("live"), say = (words) => { status.hidden = false; write(status, words); };
  const ask = async () => {
    try {
      const answer = await fetch(url, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        const fresh = await answer.text();
        if (fresh !== text) {
          text = fresh;
          take(JSON.parse(fresh));
          draw();
        }
      } else if (answer.status !== 304) throw new Error(String(answer.status));
      say(`Live: ${data.trials} of ${data.budget} trials`);
    } catch {
      say("Live: no answer, asking again");
    }
    setTimeout(ask, 1000);
  };
  ask();
}

take(JSON.parse(byId("data").textContent));
wire();
draw();
if (document.body.dataset.live) follow(document.body.dataset.live);
