"use strict";
// What Python's page_data says, read by column; numbers as people read them; which point is recommended within limits.
let data = null;
let columns = Object.create(null); // "kind:name" → Float64Array, nan where there is no number

// Names are the user's: a table of them must hold nothing of its own, such as "constructor".
const table = () => Object.create(null);

function bare(value) {
  if (Array.isArray(value)) return value.some((v) => typeof v === "object") ? value.map(bare) : value;
  if (typeof value !== "object" || value === null) return value;
  const out = table();
  for (const key of Object.keys(value)) out[key] = bare(value[key]);
  return out;
}

function take(fresh) {
  data = bare(fresh);
  columns = table();
}

// Python's rule: control characters, marks that turn the direction and ends of lines are shown by their number.
const HIDDEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const numbered = (c) => (c.codePointAt(0) < 0x10000 ? `\\u${hex(c, 4)}` : `\\U${hex(c, 8)}`);
const hex = (c, digits) => c.codePointAt(0).toString(16).padStart(digits, "0");
const visible = (text) => String(text).replace(HIDDEN, numbered);
const onLine = (text) => visible(text).replaceAll("\n", "\\u000a").replaceAll("\t", "\\u0009");

const size = () => data.points.trial.length;
const cell = (column, i) => (Array.isArray(column) ? column[i] : column);
const settingOf = (i, name) => cell(data.points.settings[name], i);
const objectiveOf = (i, o) => cell(data.points.objectives[o.name], i);

// A measure of a point; null where it was not measured. One that is an objective is kept there.
function measureOf(i, name) {
  const asked = data.objectives.find((o) => o.measure === name);
  const value = asked ? objectiveOf(i, asked) : cell(data.points.measures[name], i);
  return value === undefined ? null : value;
}

function spreadOf(i, name) {
  const value = cell(data.points.spread[name], i);
  return value === undefined ? null : value;
}

// A column to draw: an objective "o:", a measure "m:", a setting "s:", or the number of the trial "t:".
function numbers(key) {
  if (!columns[key]) {
    const name = key.slice(2), kind = key[0], p = data.points;
    const of = { o: p.objectives[name], m: p.measures[name], s: p.settings[name], t: p.trial }[kind];
    columns[key] = Float64Array.from({ length: size() }, (_, i) => {
      const v = cell(of, i);
      return typeof v === "number" ? v : NaN;
    });
  }
  return columns[key];
}

function quantities() {
  const p = data.points, varies = (column) => Array.isArray(column) && column.some((v) => typeof v === "number");
  const told = (n) => n !== "diverged_round" && !(n === "epsilon" && data.view);
  const measures = Object.keys(p.measures).filter((n) => told(n) && varies(p.measures[n]));
  return [["objectives", data.objectives.map((o) => `o:${o.name}`)],
    ["other measures", measures.map((n) => `m:${n}`)],
    ["settings", Object.keys(p.settings).filter((n) => varies(p.settings[n])).map((n) => `s:${n}`)],
    ["order", ["t:trial"]]].filter(([, keys]) => keys.length);
}

const objectiveAt = (key) => (key[0] === "o" ? data.objectives.find((o) => o.name === key.slice(2)) : undefined);

// The name of a measure, as people say it.
function measureName(name) {
  const one = data.search ? ", one training" : "";
  if (name === "epsilon") return data.view ? `true ε (${data.view})${one}` : "true ε";
  return name.startsWith("epsilon_") ? `true ε (${name.slice(8)})${one}` : name;
}

function label(key) {
  const o = objectiveAt(key), name = key.slice(2);
  if (o) return o.proxy ? `${o.name} (proxy)` : o.name;
  const proxy = key[0] === "m" && data.measures[name] && data.measures[name].proxy;
  return key[0] === "m" ? measureName(name) + (proxy ? " (proxy)" : "") : name;
}

const upward = (key) => (objectiveAt(key) ? objectiveAt(key).up : key[0] === "m" && key.slice(2).startsWith("epsilon"));

// Numbers as people read them.
function short(v) {
  if (v === null || v === undefined) return "none";
  if (typeof v !== "number") return String(v);
  if (Math.abs(v) >= 1e6) return v.toExponential(3).replace(/\.?0*e\+?/, "e");
  return String(Number(v.toPrecision(4)));
}

// A promise rounds up.
function up(v) {
  if (v === null || v === undefined) return "none";
  if (!(v > 0) || !isFinite(v)) return v;
  const unit = 10 ** (Math.floor(Math.log10(v)) - 3);
  return Number((Math.ceil((v / unit) * (1 - 1e-12)) * unit).toPrecision(12));
}

const shown = (key, v) => short(upward(key) ? up(v) : v);
const shownGoal = (i, o) => shown(`o:${o.name}`, objectiveOf(i, o));
const shownLimit = (i, l) => short(l.up ? up(measureOf(i, l.measure)) : measureOf(i, l.measure));

function bytes(v) {
  const power = v < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(v) / 3));
  return `${Number((v / 1000 ** power).toPrecision(3))} ${["bytes", "kB", "MB", "GB", "TB"][power]}`;
}

function seconds(v) {
  if (v === 0) return "0 s";
  const [unit, name] = v < 1e-3 ? [1e-6, "µs"] : v < 1 ? [1e-3, "ms"] : v < 120 ? [1, "s"] : v < 7200 ? [60, "min"] : [3600, "h"];
  return `${Number((v / unit).toPrecision(3))} ${name}`;
}

// A value as TOML and Python both write it; a float keeps its point.
function literal(v, kind, python) {
  if (typeof v === "boolean" && python) return v ? "True" : "False";
  if (typeof v !== "number") return JSON.stringify(v);
  return kind === "float" && Number.isInteger(v) && Math.abs(v) < 1e21 ? `${v}.0` : String(v);
}

// What is recommended. A point that another beats is beaten by one that holds the same limits too, so within limits the front is what is
// left of the front. The rule is Python's: the point nearest to the best of every objective, in units from there to its reference.
function withinLimits(i, limits) {
  if (!data.points.feasible[i]) return false;
  return data.objectives.every((o) => limits[o.name] === undefined || objectiveOf(i, o) <= limits[o.name]);
}

// The same for every point at once, [n] of 0 and 1.
function insideOf(limits) {
  const inside = Uint8Array.from(data.points.feasible);
  for (const o of data.objectives.filter(({ name }) => limits[name] !== undefined)) {
    const values = numbers(`o:${o.name}`);
    for (let i = 0; i < inside.length; i++) if (!(values[i] <= limits[o.name])) inside[i] = 0;
  }
  return inside;
}

function knee(front) {
  const ideal = data.objectives.map((o) => Math.min(...front.map((i) => objectiveOf(i, o))));
  const way = data.objectives.map((o, j) => (o.reference - ideal[j] > 0 ? o.reference - ideal[j] : 1));
  let best = 0, least = Infinity;
  front.forEach((i, row) => {
    const far = data.objectives.reduce((sum, o, j) => sum + ((objectiveOf(i, o) - ideal[j]) / way[j]) ** 2, 0);
    if (far < least) [best, least] = [row, far];
  });
  return best;
}

function recommend(limits, prefer = "") {
  const all = data.points.front.filter((i) => withinLimits(i, limits)), front = all.filter(useful);
  const asked = data.objectives.filter((o) => limits[o.name] !== undefined).map((o) => `${o.name} ≤ ${short(limits[o.name])}`);
  const nothing = { index: null, knee: null };
  if (!asked.length && !prefer) return { index: data.points.recommended, knee: data.points.knee, why: data.why };
  const under = asked.join(" and ") || "the study's own limits";
  if (!all.length) return { ...nothing, why: `No trial holds ${under}. ${leastFound()} Loosen a limit.` };
  if (!front.length) return { ...nothing, why: `No point under ${under} beats always giving the same answer. Loosen a limit.` };
  if (front.length === 1) return { index: front[0], knee: front[0], why: `Under ${under}: the only point left on the front.` };
  const row = knee(front), goal = prefer || (isLimited(limits) ? data.baselines.loss : "knee");
  if (goal !== "knee") return leastOf(front, front[row], goal, prefer ? under : withinAll(limits));
  const steps = [row - 1, row + 1].filter((r) => front[r] !== undefined).map((r) => move(front[row], front[r]));
  return { index: front[row], knee: front[row], why: [`Under ${under}: the knee of what is left.`, ...steps].join(" ") };
}

const useful = (i) => Boolean(cell(data.points.useful, i));

// A limit on anything but the loss makes the least loss the answer.
const limitsOf = (limits) => [...data.objectives, ...data.limits].map((o) => [o.name, limits[o.name] ?? o.limit]).filter(([, v]) => v !== null);
const isLimited = (limits) => Boolean(data.baselines) && limitsOf(limits).some(([name]) => name !== data.baselines.loss);
const withinAll = (limits) => limitsOf(limits).filter(([name]) => name !== data.baselines.loss)
  .map(([name, v]) => `${name} ≤ ${short(v)}`).join(" and ");

function leastOf(front, middle, name, under) {
  const order = [name, ...data.objectives.map((o) => o.name).filter((n) => n !== name)].map((n) => numbers(`o:${n}`));
  const before = (a, b) => {
    const values = order.find((v) => v[a] !== v[b]);
    return values !== undefined && values[a] < values[b];
  };
  const index = front.reduce((a, b) => (before(b, a) ? b : a));
  const beside = index === middle ? "It is the knee too." : `Beside it stands the knee. ${move(index, middle)}`;
  return { index, knee: middle, why: `The least ${name} within ${under}. ${beside}` };
}

function leastFound() {
  const all = Array.from({ length: size() }, (_, i) => i);
  const least = (o) => all.reduce((low, i) => Math.min(low, objectiveOf(i, o) ?? Infinity), Infinity);
  const found = data.objectives.map((o) => `${o.name} ${short(least(o))}`).join(", ");
  return `The least of each by itself, in trials of their own: ${found}.`;
}

// What a move from one point of the front to another gains and costs.
function move(here, there) {
  const by = data.objectives.map((o) => [o.name, objectiveOf(there, o) - objectiveOf(here, o)]);
  const digits = (v) => Number(v.toPrecision(3));
  const gains = by.filter(([, d]) => d < 0).map(([name, d]) => `${digits(-d)} less ${name}`);
  const costs = by.filter(([, d]) => d > 0).map(([name, d]) => `${digits(d)} more ${name}`);
  return `From here to trial ${data.points.trial[there]}: ${gains.join(" and ")} for ${costs.join(" and ")}.`;
}

// A point's name that outlives new rows: its trial and its settings.
const nameOf = (i) => `${data.points.trial[i]} ${JSON.stringify(Object.keys(data.points.settings).map((n) => settingOf(i, n)))}`;

function indexOf(name) {
  const trial = Number(name.split(" ")[0]);
  for (let i = 0; i < size(); i++) if (data.points.trial[i] === trial && nameOf(i) === name) return i;
  return null;
}

const isEarly = (i) => data.points.early.includes(i);
