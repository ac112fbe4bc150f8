"""The papers' figures and tables by name: their studies load and run, and the page says what was committed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedpareto.errors import SettingError
from fedpareto.loop import verify
from fedpareto.reproduce import EXPERIMENTS, NAMES, named, papers_page, reproduce, results, study_of
from fedpareto.reproduce.experiment import Experiment, Found, Part, verdict_of
from fedpareto.reproduce.judge import above, missing, number
from fedpareto.reproduce.races import race
from fedpareto.store import Store

ROOT = Path(__file__).parents[1]
PARTS = {p.name: p for e in EXPERIMENTS.values() for p in e.parts}
NUMBER = r"\d+(?:\.\d+)?"


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_study_loads_at_every_scale(name, scale, tmp_path):
    study = study_of(PARTS[name], scale, tmp_path)
    assert study.name == name
    assert study.budget >= study.optimizer.batch


def test_a_name_states_the_same_studies_wherever_it_is_used():
    for experiment in EXPERIMENTS.values():
        assert all(PARTS[p.name] == p for p in experiment.parts)


def test_the_list_shows_every_name_with_its_times(fedpareto):
    done = fedpareto("reproduce", "--list")
    assert done.status == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == [*NAMES]
    assert "has no studies yet" in done.out


def test_a_name_that_does_not_exist_is_refused():
    with pytest.raises(SettingError, match="must name a figure or table of --list, found 'gu24-fig9'"):
        named(["gu24-fig9"])


def test_a_name_without_studies_is_refused(monkeypatch):
    monkeypatch.delitem(EXPERIMENTS, "gu24-fig4")
    with pytest.raises(SettingError, match="found gu24-fig4, which has none yet"):
        named(["gu24-fig4"])


def test_missing_study_files_are_said(tmp_path):
    with pytest.raises(SettingError, match=r"needs the study files of the source, found no .*nothing\.toml"):
        study_of(Part("x", "nothing.toml"), "paper", tmp_path)


@pytest.mark.parametrize("name", ["{part}.toml", "{experiment}.json", "{experiment}.png"])
def test_files_of_another_kind_in_the_folder_are_not_replaced(tmp_path, fedpareto, name):
    experiment = next(iter(EXPERIMENTS.values()))
    mine = tmp_path / "quick" / name.format(part=experiment.at("quick")[0].name, experiment=experiment.name)
    mine.parent.mkdir()
    mine.write_text("mine")
    refused = fedpareto("reproduce", experiment.name, "--output", tmp_path)
    assert refused.status == 2
    assert refused.err.splitlines()[-1].startswith("error: --output: must be a new file or a ")
    assert refused.err.endswith("would be lost. Name another, or move it away.\n")
    assert mine.read_text() == "mine"
    assert [p.name for p in mine.parent.iterdir()] == [mine.name]


def test_a_number_agrees_within_the_interval_and_differs_outside():
    assert number("k", 22, "Fig. 2", 20, (18, 23)).verdict == "agrees"
    assert number("k", 22, "Fig. 2", 34, (31, 37)).verdict == "differs"
    assert number("k", 22, "Fig. 2", 34, (10, 90)).verdict == "open"


def test_a_ranking_is_open_within_two_standard_errors():
    assert above("a above b", "6.2", [0.9, 0.91, 0.9], [0.5, 0.52, 0.5]).verdict == "agrees"
    assert above("a above b", "6.2", [0.5, 0.52, 0.5], [0.9, 0.91, 0.9]).verdict == "differs"
    assert above("a above b", "6.2", [0.5, 0.6, 0.4], [0.5, 0.5, 0.5]).verdict == "open"
    assert above("a above b", "6.2", [0.9], [0.5]).verdict == "open"


def test_one_difference_makes_the_whole_differ():
    agrees = number("k", 1, "", 1, (0.8, 1.2))
    assert verdict_of([agrees]) == "agrees"
    assert verdict_of([agrees, missing("x", "1", "", "why")]) == "open"
    assert verdict_of([agrees, number("k", 5, "", 1, (0.8, 1.2))]) == "differs"


def tiny(name, optimizer):
    changes = {"name": name, "data.name": "digits", "model": {"name": "lr"}, "training.local_epochs": 1,
               "training.rounds": 1, "training.evaluate_every": 1, "budget": 4, "optimizer": optimizer}
    return Part(name, "kang23-rd.toml", changes, {})


def test_a_run_goes_on_from_its_rows_verifies_and_says_the_same(tmp_path):
    parts = [tiny(f"{a}-seed{s}", {"name": "nsga2", "population": 2, "penalty": a == "one"}) for a in ("one", "two") for s in (1, 2)]
    parts = tuple(replace(p, changes={**p.changes, "seed": 1 + i % 2}) for i, p in enumerate(parts))
    experiment = Experiment("tiny", "a race", "nothing", parts, race("Fig. 3", [("one", "two")]))
    first = reproduce(experiment, "quick", tmp_path)
    assert (tmp_path / "tiny.png").stat().st_size > 1000
    assert json.loads((tmp_path / "tiny.json").read_text()) == json.loads(json.dumps(first))
    study = study_of(parts[0], "quick", tmp_path)
    with Store.read(tmp_path / "one-seed1.db") as store:
        assert len(store) == 4
        assert list(verify(study, store)) == []
    again = reproduce(experiment, "quick", tmp_path)
    assert again["comparisons"] == first["comparisons"]
    assert again["panels"] == first["panels"]
    assert "of 1 statements agree" in first["paragraph"]


def test_the_page_is_what_the_results_say():
    assert (ROOT / "docs" / "papers.md").read_text() == papers_page(results()), "run: python docs/generate.py"


def test_no_number_stands_on_the_page_that_the_results_do_not_hold():
    held = {n for path in (ROOT / "benchmarks" / "results" / "papers").glob("*.json") for n in re.findall(NUMBER, path.read_text())}
    held |= {n for name in NAMES for n in re.findall(NUMBER, name)}
    assert set(re.findall(NUMBER, (ROOT / "docs" / "papers.md").read_text())) <= held


def test_nothing_found_is_open():
    assert verdict_of(Found((), ()).comparisons) == "open"
