"""Names that would act on what shows them: every output shows them as text."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fedpareto import Store, load_study, pick
from fedpareto.report.points import view_of
from fedpareto.report.text import column, front_csv
from fedpareto.store import Audit
from fedpareto.trials import Trial
from fedpareto.words import in_shell, visible, visible_lines

from .pages import address, made_up
from .test_browser_page import ringed, settle

SCRIPT = "<img src=x onerror=\"window.ran=1\"></script><script>window.ran=1</script>"
NAMES = [
    ("constructor", "__proto__", "toString"),
    ("x", "y", "x-axis"),
    (SCRIPT, "</title><!--", "⟦rate⟧ {{data}}"),
    ("[/x]", "$\\frac$", "\x1b[31mred\x07"),
    ("\u202etxet", "a\nb\tc", "\u2028line\x7f"),
    ("trial", "test_loss", "=cmd|' /C calc'!A0"),
]


def hostile(names, tmp_path):
    """Return a view with such names in every place."""
    seen = made_up(60, 3, name=f"study {names[0]}", setting=f"set {names[1]}", names=names)
    path = tmp_path / f"{names[0].replace('/', '_')}.toml"
    path.write_text("# a file\n")
    failed = Trial(60, 6, (0.5, 0.5), seen.points[0].settings, "failed", {}, {}, error=f"failed: {names[2]} {SCRIPT}")
    return replace(seen, study=replace(seen.study, path=path), failed=(failed,))


@pytest.mark.parametrize("names", NAMES, ids=range(len(NAMES)))
def test_the_page_shows_hostile_names_as_text_and_the_right_front(shown, names, tmp_path):
    seen = hostile(names, tmp_path)
    tab = shown(seen)
    heads = tab.locator("#table th").all_text_contents()
    assert heads[:4] == ["trial", *(visible_lines(column(o)) for o in seen.objectives)]
    assert len(heads) == 4 + len(seen.points[0].settings)
    front = sorted(int(words) for words in tab.locator("#table tbody button").all_text_contents())
    assert front == sorted(p.trial for p in seen.front) or len(seen.front) > 30
    assert seen.points[ringed(tab)] is seen.recommended
    limit = round(float(np.median([p.objectives[names[1]] for p in seen.front])), 3)
    tab.locator("#limit-of-1").fill(str(limit))
    tab.locator("#limit-of-1").press("Enter")
    settle(tab)
    assert seen.points[ringed(tab)] is pick(seen, {names[1]: limit})[0]
    assert tab.evaluate("window.ran") is None
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    text = tab.locator("body").inner_text()
    assert visible_lines(text) == text
    for key in (f"o:{name}" for name in names):  # every axis can be chosen
        tab.locator("#x-axis").select_option(key)
        assert tab.evaluate("state.x") == key


STUDIES = [("constructor", "__proto__"), (SCRIPT, "</title><!--"), ("[/x]", "$\\frac$"), ("\u202etxet", "\x1b[31mred"),
           ("trial", "test_loss"), ("=cmd|' /C calc'!A0", "\u2028\x7f")]


def attacked(study, names):
    """Keep what attacks found, whose every text is hostile."""
    loaded = load_study(study)
    with Store.read(study.with_suffix(".db")) as store:
        front = view_of(loaded, store).front
    found = {"epsilon": 1.0, "epsilon_hat": 0.5, "canaries": 9, "alarm": True, "why": names[0], "form": names[1], "auc": 0.5, "roc": [[0.1, 0.2]], "psnr": 9.0, names[0]: SCRIPT}
    with Store.write(study.with_suffix(".db"), loaded.name, loaded.identity, loaded.repeats) as store:
        store.add_audits([Audit(p.trial, dict(p.settings), names[1], "server", 0, {names[0]: names[1]}, found, b"\x89PNG\r\n\x1a\n", names[0]) for p in front])


@pytest.mark.parametrize("names", STUDIES, ids=range(len(STUDIES)))
def test_every_verb_shows_hostile_names_as_text(names, study_text, fedpareto, tabs, tmp_path):
    first, second = map(json.dumps, names)
    text = study_text.replace("objectives.utility_loss", f"objectives.{first}").replace("objectives.leakage", f"objectives.{second}")
    text = text.replace('name = "tiny"', f"name = {first}").replace("\x7f", "\\u007f").replace("limit = 0.8", "limit = 1.0")
    third = json.dumps(f"{names[0]} {names[1]}").replace("\x7f", "\\u007f")
    text += f'\n[limits.{third}]\nmeasure = "test_loss"\nlimit = 100\n'
    study = tmp_path / f"{names[1].replace('/', '_')}.toml"
    study.write_text(text, encoding="utf-8")
    out, compared, noted = (tmp_path / f"{name}.html" for name in ("evidence", "compared", "notebook"))
    assert fedpareto("run", study).status == 0
    attacked(study, names)
    calls = [("run",), ("front",), ("pick",), ("verify",), ("report", "--svg"), ("report", "--evidence", "--output", out),
             ("compare", "--output", compared, "--figure", tmp_path / "drawn.png"), ("train",), ("audit", "--attack", "noise", "--view", "server", "--seconds", "0.01"),
             ("pick", "--output", tmp_path / "picked.toml")]
    for verb, *options in calls:
        done = fedpareto(verb, study, *options)
        assert done.status == 0, done.err
        assert visible_lines(done.out + done.err) == done.out + done.err
    assert list(json.loads(fedpareto("front", study, "--json").out)["points"][0]["objectives"]) == list(names)
    loaded = load_study(study)
    with Store.read(study.with_suffix(".db")) as store:
        seen = view_of(loaded, store)
        noted.write_text("<!doctype html><meta charset=utf-8>" + "".join(one._repr_html_() for one in (seen, store, loaded)), encoding="utf-8")
    assert "What an attacker really gets" in study.with_suffix(".html").read_text("utf-8")
    for page in (study.with_suffix(".html"), out, compared, noted):
        tab = tabs(address(page))
        assert tab.evaluate("window.ran") is None
        assert visible_lines(tab.locator("body").inner_text()) == tab.locator("body").inner_text()
    assert fedpareto("run", tmp_path / "picked.toml", "--budget", 1).status == 0


def test_a_csv_keeps_every_column_whatever_objectives_are_called():
    seen = made_up(20, 3, names=("trial", "f3", "=1+1"))
    rows = list(csv.reader(io.StringIO(front_csv(seen))))
    assert len(set(rows[0])) == len(rows[0])
    at = {name: rows[0].index(name) for name in ("trial", "objective.trial", "objective.f3", "'=1+1")}
    for row, point in zip(rows[1:], seen.front, strict=True):
        assert int(row[at["trial"]]) == point.trial
        assert float(row[at["objective.trial"]]) == point.objectives["trial"]
        assert float(row[at["objective.f3"]]) == point.objectives["f3"]
        assert float(row[at["'=1+1"]]) == point.objectives["=1+1"]


@pytest.mark.parametrize(("text", "seen"), [
    ("plain é ★", "plain é ★"), ("\x1b[31m", "\\u001b[31m"), ("\u202ea", "\\u202ea"), ("a\nb", "a\\u000ab"), ("\x7f", "\\u007f"),
    ("\U000e0001", "\\U000e0001"), ("\udc80", "\\udc80"), ("क्‍ष", "क्‍ष"), ("\u2028", "\\u2028")])
def test_what_cannot_be_seen_is_shown_by_its_number(text, seen):
    assert visible(text) == seen


def test_lines_and_tabs_of_a_file_are_kept():
    assert visible_lines("a\tb\r\nc\x1b") == "a\tb\nc\\u001b"


@pytest.mark.parametrize("word", ["plain", "two words", "it's", "a\nb", "\u202ex'\\"])
def test_a_shell_reads_the_word_that_was_meant(word):
    import subprocess

    if shutil.which("bash") is None:
        pytest.skip("no bash")
    said = subprocess.run(["bash", "-c", f"printf %s {in_shell(word)}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True)
    assert said.stdout.decode() == word
