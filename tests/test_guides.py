"""The guides: every command in them runs, every snippet is part of a file that runs, every query answers."""

from __future__ import annotations

import re
import runpy
import shutil
import sqlite3
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from fedpareto.testing import check_optimizer

ROOT = Path(__file__).parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
EXAMPLES = [p for p in sorted((ROOT / "examples").iterdir()) if p.suffix in (".py", ".toml") or p.name == "hospitals_public.csv"]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def small(text):
    """Return a study file that asks the same with few trials of few rounds."""
    text = re.sub(r"(?m)^repeats = \d+", "repeats = 1", text)
    text = re.sub(r"(?m)^budget = \d+", "budget = 12", text)
    text = re.sub(r"(?m)^population = \d+", "population = 6", text)
    text = re.sub(r"(?m)^rounds = \d+", "rounds = 3", text)
    return re.sub(r"(?m)^rounds = \[(\d+), \d+\]", r"rounds = [\1, 6]", text)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the examples, made small, where commands can be typed as a reader would."""
    (tmp_path / "examples").mkdir()
    for path in EXAMPLES:
        target = tmp_path / "examples" / path.name
        target.write_text(small(path.read_text()) if path.suffix == ".toml" else path.read_text())
    for path in EXAMPLES:  # modules of this name that another test loaded from its own folder
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "examples"), *sys.path])
    return tmp_path


def commands(page):
    return [line.split("#")[0].split() for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]


def type_in(words, fedpareto, monkeypatch):
    """Run a command of a guide; a budget is made small."""
    if words[0] == "python":
        monkeypatch.setattr(sys, "argv", words[1:])
        runpy.run_path(words[1], run_name="__main__")
        return
    assert words[0] == "fedpareto", words
    words = [w if before != "--budget" else "14" for before, w in pairwise(words)]
    done = fedpareto(*words)
    assert done.status == 0, (words, done.err)


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: p.stem)
def test_every_command_of_a_guide_runs(page, workplace, fedpareto, monkeypatch):
    for words in commands(page):
        type_in(words, fedpareto, monkeypatch)


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: p.stem)
def test_a_guide_is_short_asks_one_question_and_its_links_lead_somewhere(page):
    text = page.read_text()
    assert text.count("\n") <= 60
    assert re.match(r"# [^\n]+\?\n", text)
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: p.stem)
def test_every_snippet_of_a_guide_is_part_of_an_example(page):
    examples = [p.read_text() for p in EXAMPLES]
    for block in [*blocks(page, "python"), *blocks(page, "toml")]:
        assert any(block in text for text in examples), block
    assert set(re.findall(r"```(\w+)", page.read_text())) <= {"sh", "python", "toml", "sql"}


def test_the_queries_answer(finished_study):
    queries = [q for block in blocks(ROOT / "docs" / "guides" / "read-the-database.md", "sql") for q in block.split(";") if q.strip()]
    assert len(queries) == 8
    with closing(sqlite3.connect(f"{finished_study.with_suffix('.db').as_uri()}?mode=ro", uri=True)) as db:
        answers = [db.execute(query).fetchall() for query in queries]
    assert answers[0] == [("done", 2)]
    assert [type(v) for v in answers[1][0]] == [int, float, float, float]
    assert ("epsilon_server",) in answers[2]
    assert answers[3] == []
    assert len(answers[4]) == 2
    assert answers[5] == [("tiny", "randomization", 1)]
    assert answers[6][0][3] == 2
    assert answers[7] == []  # nothing was attacked


def test_the_example_that_reads_rows_runs(finished_study, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["read_rows.py", str(finished_study.with_suffix(".db"))])
    runpy.run_path(str(ROOT / "examples" / "read_rows.py"))
    assert "2 of 2 trials finished" in capsys.readouterr().out


def test_the_example_optimizer_keeps_the_contract():
    from own_optimizer import Steps

    check_optimizer(Steps(batch=4))


def test_every_guide_is_linked_from_the_index_and_the_readme():
    index, readme = (ROOT / "docs" / "index.md").read_text(), (ROOT / "README.md").read_text()
    for page in GUIDES:
        assert f"guides/{page.name}" in index
        assert f"docs/guides/{page.name}" in readme


def test_the_readme_leads_from_ones_own_model_to_a_chosen_setting(workplace, fedpareto, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text()
    own = text[text.index("## Your own model and data"):]
    block = re.search(r"```sh\n(.*?)```", own, re.S)[1]
    typed = [line.split("#")[0].strip() for line in block.splitlines() if not line.startswith("#")]
    assert len(typed) == 3
    for line in typed:
        words = line.removeprefix(".venv/bin/").split()
        type_in(words, fedpareto, monkeypatch)
    assert (workplace / "examples" / "own_data.npz").exists()
    shutil.rmtree(workplace / "examples")
