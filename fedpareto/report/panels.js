// What is said of one point: its numbers, privacy, cost, clients and settings; and what is said of all: curve, table, split.
const percent = (share) => `${(Math.ceil(share * 1000 - 1e-6) / 10).toFixed(1)} %`;

function title(i) {
  if (i === null) return "no point";
  return isEarly(i) ? `an earlier round of trial ${data.points.trial[i]}` : `trial ${data.points.trial[i]}`;
}

function describe(i) {
  const where = [data.points.front.includes(i) ? "on the front" : "", data.points.feasible[i] ? "" : "outside the study's limits", fewer(i)];
  const rows = [[title(i), ...where].filter(Boolean).join(", ")];
  for (const o of data.objectives) rows.push(`${onLine(o.name)}: ${shownGoal(i, o)}${repeatsApart(i, o.measure)}`);
  for (const l of data.limits) rows.push(`${onLine(l.heading)}: ${shownLimit(i, l)}${repeatsApart(i, l.measure)}`);
  if (trueEpsilon()) rows.push(`${measureName("epsilon")}: ${short(up(measureOf(i, "epsilon")))}`);
  rows.push("");
  for (const name of Object.keys(data.points.settings)) rows.push(`${onLine(name)}: ${onLine(short(settingOf(i, name)))}`);
  return rows.join("\n");
}

// Whether a true ε is known that is neither an objective nor a limit itself.
const trueEpsilon = () => Boolean(data.view) && ![...data.objectives, ...data.limits].some((o) => o.measure === "epsilon");

// Whether a point is the mean of fewer trainings than the study's others.
function fewer(i) {
  const runs = cell(data.points.runs, i);
  return runs < data.repeats ? `trained ${runs} of ${data.repeats} times` : "";
}

function repeatsApart(i, name) {
  const apart = spreadOf(i, name);
  return apart ? ` ± ${Number(apart.toPrecision(2))}` : "";
}

// What attacks found of a point: its rows alone, unless every point's are asked for.
function showAudits(i) {
  const card = byId("audits");
  if (!card) return;
  const marked = [...card.querySelectorAll("[data-at]")];
  const attacked = marked.some((part) => Number(part.dataset.at) === i);
  for (const part of attacked ? marked : []) {
    const mine = Number(part.dataset.at) === i;
    (part.closest("tr") ?? part).classList.toggle("mine", mine);
  }
  card.classList.toggle("one", attacked && !byId("audits-every").checked);
  byId("audits-none").hidden = attacked;
}

function showChoice(i, why) {
  const picked = state.picked !== null;
  write(byId("choice-title"), picked ? "Your pick" : "Recommended");
  const notes = i === null ? [] : [title(i), fewer(i)].filter(Boolean);
  if (picked && i === state.best) notes.push("the recommended point");
  if (picked && !state.inside[i]) notes.push("outside the limits");
  if (picked && !data.points.front.includes(i)) notes.push("not on the front: another trial is better");
  write(byId("choice-state"), notes.join(", "));
  byId("unpick").hidden = !picked;
  tell(byId("why"), picked && i !== state.best ? besides(i) : why);
  write(byId("price"), data.price);
  write(byId("held"), data.against.join(" "));
  byId("chosen").replaceChildren();
  byId("settings").replaceChildren();
  if (i === null) return;
  const show = (value, words, apart) => {
    const d = node(byId("chosen"), "div");
    node(node(d, "b", {}, value), "small", {}, apart);
    node(d, "span", {}, words);
  };
  if (data.search) show(short(wholeSearch(data.view)), `true ε (${data.view}) of the whole search: what holds`, "");
  const one = () => trueEpsilon() && show(short(up(measureOf(i, "epsilon"))), measureName("epsilon"), "");
  if (data.search) one();
  const alone = (promised) => (promised && data.search ? ", one training" : "");
  for (const o of data.objectives) show(shownGoal(i, o), o.name + (o.proxy ? " (proxy)" : "") + alone(o.up), repeatsApart(i, o.measure));
  for (const l of data.limits) show(shownLimit(i, l), l.heading + alone(l.up), repeatsApart(i, l.measure));
  if (!data.search) one();
  for (const name of Object.keys(data.points.settings)) {
    node(byId("settings"), "dt", {}, name);
    node(byId("settings"), "dd", {}, short(settingOf(i, name)));
  }
}

// A pick beside the recommended point.
function besides(i) {
  if (state.best === null) return "No point is recommended under these limits.";
  const by = data.objectives.map((o) => [o.name, objectiveOf(i, o) - objectiveOf(state.best, o)]).filter(([, d]) => d);
  const words = by.map(([name, d]) => `${Number(Math.abs(d).toPrecision(3))} ${d < 0 ? "less" : "more"} ${name}`);
  return `Beside the recommended ${title(state.best)}: ${words.join(", ") || "the same in every objective"}.`;
}

// Privacy: each proxy, and the true ε of every view, of one point.
function showPrivacy(i) {
  const proxies = Object.keys(data.measures).filter((n) => data.measures[n].proxy && i !== null && measureOf(i, n) !== null);
  const named = data.objectives.filter((o) => o.proxy && !proxies.includes(o.measure));
  byId("privacy").hidden = i === null || !(data.view || proxies.length || named.length);
  if (byId("privacy").hidden) return;
  write(byId("learnt"), data.view ? `What could somebody learn about one ${data.views.about}?` : "Privacy");
  const row = tableOf("epsilons");
  for (const view of data.view ? Object.keys(data.views.sees) : []) {
    const one = up(epsilonOf(i, view)), e = data.search ? wholeSearch(view) : one;
    row(`true ε, ${view}`, data.views.sees[view] + ofSearch(), short(e), epsilonWords(e) + ofOne(one), view === data.view);
  }
  byId("epsilons").hidden = !data.view;
  byId("proxies-part").hidden = !(named.length || proxies.length);
  const proxyRow = tableOf("scales");
  for (const o of named) proxyRow(o.name, o.proxy, shownGoal(i, o), proxyWords(o.name));
  for (const n of proxies) {
    const o = data.objectives.find((one) => one.measure === n);
    proxyRow(o ? o.name : n, data.measures[n].proxy, short(measureOf(i, n)), proxyWords(n));
  }
  drawScale(i);
  const models = measureOf(i, "epsilon_release"), sums = measureOf(i, "epsilon_secagg");
  write(byId("above"), models !== null && sums !== null && models > sums ? data.above : "");
  tell(byId("privacy-words"), privacyWords());
  byId("against").hidden = !againstAxes();
}

// The ε that holds, in its place among published ones, the least first.
function drawScale(i) {
  byId("scale-part").hidden = !data.view;
  byId("scale").replaceChildren();
  if (!data.view) return;
  const e = data.search ? wholeSearch(data.view) : up(epsilonOf(i, data.view)), known = typeof e === "number";
  const all = data.scale.points.map(({ epsilon, says, source }) => ({ epsilon, says, source }));
  const says = data.search ? `this search, for ${data.views.whose}` : `${title(i)} of this study, for ${data.views.whose}`;
  if (known) all.push({ epsilon: e, says, own: true });
  for (const one of all.sort((a, b) => a.epsilon - b.epsilon)) {
    const li = node(byId("scale"), "li", one.own ? { class: "here", "aria-current": "true" } : {});
    node(li, "b", {}, `ε = ${short(one.epsilon)}`);
    const words = node(li, "span", {}, one.says);
    if (one.source) node(words, "small", {}, one.source);
  }
  write(byId("scale-note"), `${known ? "" : "Without a promise this point has no place among them. "}${data.scale.note}`);
}

// An empty table of numbers and what they say; returns what adds a row to it.
function tableOf(id) {
  const table = byId(id);
  table.replaceChildren();
  const head = node(node(table, "thead"), "tr"), body = node(table, "tbody");
  for (const h of ["", "value", "what it says"]) node(head, "th", { class: h === "value" ? "" : "text", scope: "col" }, h);
  return (name, under, value, says, main) => {
    const tr = node(body, "tr", main ? { class: "main" } : {});
    node(node(tr, "td", { class: "text" }, name), "small", {}, under);
    node(tr, "td", { class: "value" }, value);
    node(tr, "td", { class: "text" }, says);
  };
}

// The axes that hold a proxy against the true ε, where both differ between trials.
function againstAxes() {
  const proxy = data.objectives.find((o) => o.proxy), all = quantities().flatMap(([, keys]) => keys), e = `m:epsilon_${data.view}`;
  return proxy && all.includes(e) ? { x: e, y: `o:${proxy.name}` } : null;
}

const epsilonOf = (i, view) => measureOf(i, `epsilon_${view}`) ?? (view === data.view ? measureOf(i, "epsilon") : null);

// On private data the ε of all that the search shows is what holds; one training's stands beside it.
const wholeSearch = (view) => data.search.epsilon[view] ?? null;
const ofSearch = () => (data.search ? `; the whole search, ${data.search.trials} ${data.search.trials === 1 ? "trial" : "trials"}` : "");
const ofOne = (e) => (data.search && typeof e === "number" ? ` One training alone has ε ${short(e)}: it holds only where nothing of the others is shown.` : "");

function epsilonWords(e) {
  if (typeof e !== "number" && data.search) return "No promise: the search trained on private data, and no bound is known for it.";
  if (typeof e !== "number") return "No promise: no noise is added, or no bound is known for these weights.";
  const who = data.views.whose;
  const sure = 1 / (1 + Math.exp(-e));
  if (sure > 0.9995) return `Who starts at even odds about ${who} may end more than 99.9 % sure: hardly any protection.`;
  return `Who starts at even odds about ${who} ends at most ${percent(sure)} sure.`;
}

function proxyWords(name) {
  const help = data.measures[name] ? `${data.measures[name].help[0].toUpperCase()}${data.measures[name].help.slice(1)}. ` : "";
  return help.trim();
}

function privacyWords() {
  if (!data.view) return "No true ε is known for this study. A proxy is not a guarantee.";
  const chance = data.views.delta, shownChance = chance !== null && chance < 1e-3 ? chance.toExponential() : chance;
  const delta = chance === null ? "" : ` Each ε is at δ = ${shownChance}: the chance, about, that its promise fails.`;
  return `An ε bounds what anyone can learn, whatever they know already; it holds only against the onlooker named beside it.${delta}`;
}

// Cost: what one point sends, takes and spends, on the span of the front.
const COSTS = [["upload_bytes", "sent by all clients", bytes], ["upload_bytes_per_round", "sent in a round", bytes],
  ["download_bytes", "received by all clients", bytes], ["download_bytes_per_round", "received in a round", bytes],
  ["training_seconds", "work of a client", seconds], ["training_seconds_worst", "work of the slowest client", seconds],
  ["decryption_seconds", "decryption at a client", seconds], ["gu24_eq4", "all rounds, transfers included", seconds],
  ["parameters_shared", "numbers a client sends in a round", (v) => short(Math.round(v))],
  ["size_ratio", "size of an upload, unprotected = 1", short]];

function showCost(one) {
  const i = one !== null && isEarly(one) ? data.points.trial.indexOf(data.points.trial[one]) : one;
  const told = ([name]) => measureOf(i, name) !== null && !(name === "decryption_seconds" && !measureOf(i, name));
  const found = i === null ? [] : COSTS.filter(told);
  const any = COSTS.some(([name]) => name in data.points.measures);
  byId("cost").hidden = !any;
  byId("costs").replaceChildren();
  if (any && !found.length) node(byId("costs"), "p", {}, i === null ? "No point is chosen." : "Not measured.");
  if (found.length && i !== one)
    node(byId("costs"), "p", { class: "note" }, `Of the whole run, ${title(i)}: earlier rounds tell their objectives alone.`);
  byId("cost-note").hidden = true;
  for (const [name, words, say] of found) {
    const v = measureOf(i, name), [low, high] = ends(data.points.front.map((j) => measureOf(j, name)).filter((w) => w !== null));
    const row = node(byId("costs"), "div", { class: "cost-row", title: data.measures[name] ? data.measures[name].help : name });
    const line = node(row, "div");
    node(line, "span", {}, words);
    node(line, "b", {}, say(v));
    if (!(high > low)) continue;
    byId("cost-note").hidden = false;
    const at = Math.max(0, Math.min(1, (v - low) / (high - low)));
    const rail = node(row, "div", { class: "rail", role: "img", "aria-label": `the front spans ${say(low)} to ${say(high)}` });
    node(rail, "i").style.left = `${100 * at}%`;
  }
}

// Clients apart: the average and the worst client along the front, with the spread over repeats.
function worstPairs() {
  const told = (worst) => data.points.front.some((i) => measureOf(i, worst) !== null);
  return Object.keys(data.measures).filter((n) => data.measures[n].worst && told(data.measures[n].worst));
}

function drawClients(shownNow) {
  const names = worstPairs(), box = byId("clients");
  byId("clients-card").hidden = !names.length;
  byId("curve-card").classList.toggle("half", names.length > 0);
  box.replaceChildren();
  if (!names.length) return;
  if (!names.includes(state.worst)) state.worst = names[0];
  options(byId("worst"), [["", names]], state.worst, (n) => n);
  const name = state.worst, worst = data.measures[name].worst, has = data.points.front.filter((i) => measureOf(i, worst) !== null);
  const order = thinned(has.sort((a, b) => measureOf(a, name) - measureOf(b, name)), 48, shownNow);
  const about = (i, n) => [measureOf(i, n) - (spreadOf(i, n) || 0), measureOf(i, n) + (spreadOf(i, n) || 0)];
  const top = order.flatMap((i) => [...about(i, name), ...about(i, worst)]);
  const drawn = frame(box, 280, { span: [-0.7, order.length - 0.3], log: false, label: "points of the front, in order", marks: [] },
    { span: span(top, top, false, true), log: false, label: name }, `${name} of the average and the worst client`);
  const marks = [];
  order.forEach((i, k) => drawClient(drawn, marks, i, k, name, worst, i === shownNow));
  hover(drawn.svg, marks);
  write(byId("clients-words"), clientWords(shownNow, name, worst));
}

function drawClient(drawn, marks, i, k, name, worst, strong) {
  const { svg, x, y } = drawn, at = x.at(k), low = measureOf(i, name), high = measureOf(i, worst);
  const tone = strong ? "var(--pick)" : "var(--front)";
  const line = (dx, from, to, style) => node(svg, "line", { x1: at + dx, x2: at + dx, y1: y.at(from), y2: y.at(to), style });
  const bar = (v, apart, dx) => apart && line(dx, v - apart, v + apart, `stroke:${tone};stroke-width:1;opacity:.7`);
  line(0, low, high, `stroke:var(--other);stroke-width:${strong ? 3 : 1.5};opacity:.55`);
  bar(low, spreadOf(i, name), 0);
  bar(high, spreadOf(i, worst), 2);
  node(svg, "circle", { cx: at, cy: y.at(low), r: strong ? 5 : 3, style: `fill:${tone}` });
  const r = strong ? 6 : 3.6, top = y.at(high);
  const roof = `M${at} ${top - r}L${at + r} ${top + r * 0.8}H${at - r}Z`;
  node(svg, "path", { d: roof, style: `fill:var(--card);stroke:${tone};stroke-width:1.4` });
  const say = `${title(i)}\naverage: ${short(low)}${repeatsApart(i, name)}\nworst client: ${short(high)}${repeatsApart(i, worst)}`;
  marks.push({ x: at, y: y.at(low), say }, { x: at, y: top, say });
}

function clientWords(i, name, worst) {
  const key = "Dots are the average, triangles the worst client, thin bars the spread over repeats.";
  if (i === null) return key;
  if (measureOf(i, worst) === null) return `${key} Earlier rounds tell their objectives alone: nothing is known of clients at ${title(i)}.`;
  const repeats = data.repeats > 1 ? ` over ${data.repeats} repeats` : "";
  const say = (n) => short(measureOf(i, n)) + repeatsApart(i, n);
  return `${title(i)[0].toUpperCase()}${title(i).slice(1)}: average ${say(name)}, worst client ${say(worst)}${repeats}. ${key}`;
}

function thinned(order, most, keep) {
  if (order.length <= most) return order;
  const rows = new Set(Array.from({ length: most }, (_, k) => Math.round((k * (order.length - 1)) / (most - 1))));
  if (order.includes(keep)) rows.add(order.indexOf(keep));
  return order.filter((_, k) => rows.has(k));
}

// The point as a study file and as Python.
function tomlOf(i) {
  const value = (name) => literal(settingOf(i, name), data.settings[name].kind, false);
  return data.template.replace(/"⟦([^⟧]*)⟧"/g, (slot, name) => (name in data.settings ? value(name) : slot));
}

function pythonOf(i) {
  const value = (name) => literal(settingOf(i, name), data.settings[name].kind, true);
  const rows = Object.keys(data.settings).map((name) => `    ${JSON.stringify(name)}: ${value(name)},`);
  return `from fedpareto import load_study\n\nsettings = {  # ${title(i)}\n${rows.join("\n")}\n}\n`
    + `study = load_study(${JSON.stringify(data.studyFile)})\n`
    + "measured = study.problem.measure({name: [value] for name, value in settings.items()}, seeds=[study.seed])\n"
    + "print({name: float(column[0]) for name, column in measured.items()})\n";
}

// A word for a shell; what cannot be seen goes in by its number.
function quoted(text) {
  if (onLine(text) !== text) return `$'${onLine(text.replaceAll("\\", "\\\\").replaceAll("'", "\\'"))}'`;
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function commandsOf() {
  const asked = data.objectives.filter((o) => state.limits[o.name] !== undefined);
  const limits = asked.map((o) => ` --limit ${quoted(`${o.name}=${state.limits[o.name]}`)}`).join("");
  const pick = `fedpareto pick ${quoted(data.studyFile)}${limits}${state.prefer ? ` --prefer ${quoted(state.prefer)}` : ""} --output pick.toml`;
  return data.commands.length ? [...data.commands, pick].join("\n") : "";
}

function showSettings(i) {
  byId("toml-part").hidden = i === null || !data.template;
  write(byId("toml"), i === null || !data.template ? "" : tomlOf(i));
  write(byId("python"), i === null ? "No point is chosen." : pythonOf(i));
}

function drawCurve() {
  const box = byId("curve"), n = data.curve.length;
  box.replaceChildren();
  if (n < 2) return void node(box, "p", { class: "note" }, "Two trials are needed for a curve.");
  const steps = data.curve.map((v, i) => [i + 1, v]).filter(([k, v]) => k === 1 || k === n || v !== data.curve[k - 2]);
  const upwards = { span: span(data.curve, data.curve, false, true), log: false, label: "hypervolume" };
  const drawn = frame(box, 280, { span: [0, n], log: false, label: "trials" }, upwards, "hypervolume over trials");
  const xy = steps.map(([k, v]) => [drawn.x.at(k), drawn.y.at(v)]);
  node(drawn.svg, "path", { d: stairs(xy), style: "fill:none;stroke:var(--front);stroke-width:2" });
  const boxed = data.objectives.every((o) => o.reference > 0), whole = data.objectives.reduce((a, o) => a * o.reference, 1);
  const part = (v) => (boxed ? `, share ${(v / whole).toPrecision(3)} of the reference box` : "");
  const say = (k, v) => `after ${k} ${k === 1 ? "trial" : "trials"}: ${v.toPrecision(5)}${part(v)}`;
  hover(drawn.svg, steps.map(([k, v], j) => ({ x: xy[j][0], y: xy[j][1], say: say(k, v) })), 60);
}

const ROWS = 30;

function drawTable() {
  const names = Object.keys(data.points.settings), eps = trueEpsilon();
  const heads = ["trial", ...[...data.objectives, ...data.limits].map((o) => o.heading), ...(eps ? [measureName("epsilon")] : []), ...names];
  const front = state.more ? data.points.front : thinned(data.points.front, ROWS, state.best);
  const rows = front.map((i) => ({ attributes: { "data-index": i },
    cells: ["", ...data.objectives.map((o) => shownGoal(i, o)), ...data.limits.map((l) => shownLimit(i, l)), ...(eps ? [short(up(measureOf(i, "epsilon")))] : []),
      ...names.map((n) => settingOf(i, n))] }));
  const body = fill(byId("table"), heads, rows);
  for (const tr of body.children) {
    const i = Number(tr.dataset.index), first = tr.firstChild;
    first.className = "";
    const button = node(first, "button", { type: "button", "aria-label": `pick ${title(i)}` }, String(data.points.trial[i]));
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      choose(i);
    });
    tr.addEventListener("click", () => choose(i));
  }
  byId("more").hidden = front.length === data.points.front.length;
  write(byId("more"), `Show all ${data.points.front.length}`);
}

function paintTable() {
  for (const tr of document.querySelectorAll("#table tbody tr")) {
    const i = Number(tr.dataset.index);
    tr.classList.toggle("best", i === state.best);
    tr.classList.toggle("pick", i === state.picked);
    tr.classList.toggle("out", Boolean(data.points.feasible[i]) && !state.inside[i]);
  }
}

function drawFailed() {
  byId("failed").hidden = !data.failed.length;
  if (!data.failed.length) return;
  fill(byId("failures"), ["trial", "why", ...Object.keys(data.failed[0].settings)],
    data.failed.slice(0, 200).map((t) => ({ cells: [t.trial, t.error, ...Object.values(t.settings)] })));
}

const TONES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#44bb99", "#9999cc"];

// Which colour is which class; where there are more classes than colours, each colour names all of its classes.
function drawClasses(classes) {
  const box = byId("split-legend");
  box.replaceChildren();
  for (let c = 0; c < Math.min(classes, TONES.length) && classes > 1; c++) {
    const mine = Array.from({ length: classes }, (_, k) => k).filter((k) => k % TONES.length === c);
    const some = mine.length > 4 ? `${mine.slice(0, 3).join(", ")}, …` : mine.join(", ");
    const span = node(box, "span"), svg = node(span, "svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    node(svg, "rect", { x: 2, y: 2, width: 12, height: 12, fill: TONES[c] });
    span.append(`class ${some}`);
  }
}

function drawSplit() {
  byId("split").hidden = !data.split && !data.noSplit;
  write(byId("split-words"), data.noSplit);
  if (!data.split) return;
  const classes = data.split[0].length, box = byId("shares"), most = Math.max(...data.split.map((row) => row.reduce((a, b) => a + b, 0))), marks = [];
  box.replaceChildren();
  const across = { span: [-0.6, data.split.length - 0.4], log: false, label: "client" };
  const upwards = { span: [0, most * 1.05], log: false, label: "training records" };
  const drawn = frame(box, 260, across, upwards, "training records of each client by class");
  const wide = 0.85 * (drawn.x.at(1) - drawn.x.at(0));
  data.split.forEach((row, k) => row.reduce((below, n, c) => {
    if (n) {
      const y = drawn.y.at(below + n), height = drawn.y.at(below) - y;
      node(drawn.svg, "rect", { x: drawn.x.at(k) - wide / 2, width: wide, y, height, fill: TONES[c % TONES.length] });
      marks.push({ x: drawn.x.at(k), y: drawn.y.at(below + n / 2), say: `client ${k}: ${n} ${n === 1 ? "record" : "records"}${classes > 1 ? ` of class ${c}` : ""}` });
    }
    return below + n;
  }, 0));
  hover(drawn.svg, marks);
  const more = data.clients > data.split.length ? `The first ${data.split.length} of ${data.clients} clients. ` : "";
  write(byId("split-words"), `${more}Training records${classes > 1 ? " by class" : ""}, in the first repeat.`);
  drawClasses(classes);
}
