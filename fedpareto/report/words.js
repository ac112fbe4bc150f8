// The glossary: words that explain themselves when pointed at, tapped or reached by keys; all of them stand at the page's end.
const wordOf = () => new RegExp(`(?<![\\p{L}\\p{N}_])(${Object.keys(data.glossary).join("|")})(?![\\p{L}\\p{N}_])`, "u");

// Write a text, and make the first of each word of the glossary one to ask about.
function tell(at, text) {
  at.replaceChildren();
  const told = new Set();
  let rest = visible(text);
  for (let found = rest.match(wordOf()); found; found = rest.match(wordOf())) {
    const [word] = found, before = rest.slice(0, found.index);
    at.append(before);
    if (told.has(word)) at.append(word);
    else term(at, word);
    told.add(word);
    rest = rest.slice(found.index + word.length);
  }
  at.append(rest);
}

const idOf = (word) => `word-${word.replaceAll(" ", "-")}`;

function term(at, word) {
  return node(at, "dfn", { class: "term", tabindex: 0, "data-word": word, "aria-describedby": idOf(word) }, word);
}

function drawWords() {
  const list = byId("words");
  list.replaceChildren();
  for (const [word, says] of Object.entries(data.glossary)) {
    node(list, "dt", {}, word);
    node(list, "dd", { id: idOf(word) }, says);
  }
}

function explain(event) {
  const at = event.target.closest?.(".term");
  if (!at) return;
  const box = at.getBoundingClientRect();
  showTip(data.glossary[at.dataset.word], box.left, box.bottom);
}

function wireWords() {
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, explain);
  for (const kind of ["pointerout", "focusout"])
    document.addEventListener(kind, (event) => { if (event.target.closest?.(".term")) hideTip(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && event.target.closest?.(".term")) hideTip(); });
}

// A table that is wider than its box says so.
function cue() {
  for (const box of document.querySelectorAll(".scroll")) {
    const wide = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("wider", wide);
    const next = box.nextElementSibling, there = next && next.classList.contains("cue");
    if (wide && !there) box.after(node(null, "p", { class: "note cue" }, "The table is wider than the screen: move it sideways."));
    if (!wide && there) next.remove();
  }
}
