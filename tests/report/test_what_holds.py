"""Of a search on private data, page and evidence lead with the ε that holds: that of all that is shown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedpareto import load_study, run, view
from fedpareto.report.evidence import evidence
from fedpareto.report.page import page_data
from fedpareto.report.privacy import search_epsilons

from .test_evidence import words

EXAMPLE = Path(__file__).parents[2] / "examples" / "private_search.toml"


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """Two trials of the example."""
    study = replace(load_study(EXAMPLE), budget=2)
    with run(study, tmp_path_factory.mktemp("private") / "rows.db") as store:
        yield view(study, store), store.trials()


def test_the_page_says_what_the_whole_search_tells_of_a_client(shown, private):
    seen, _ = private
    whole, one = page_data(seen)["search"]["epsilon"], seen.recommended.measures["epsilon_release"]
    assert whole.keys() == {"server", "secagg", "release"}
    assert all(whole[v] > seen.recommended.measures[f"epsilon_{v}"] for v in whole)
    tab = shown(seen)
    figures = tab.locator("#chosen > div").all_inner_texts()
    assert figures[0].split("\n") == [f"{whole['release']:.4g}", "true ε (release) of the whole search: what holds"]
    assert figures[1].split("\n")[1] == "true ε (release), one training"
    row = tab.locator("#epsilons tr.main").inner_text()
    assert f"{whole['release']:.4g}" in row.split("Who starts")[0]
    assert "the whole search, 2 trials" in row
    sure = 100 / (1 + 2.718281828 ** -whole["release"])
    assert float(re.search(r"ends at most ([\d.]+) % sure", row)[1]) == pytest.approx(sure, abs=0.11)
    assert f"One training alone has ε {one:.2f}"[:-1] in row
    assert "true ε (release), one training" in tab.locator("#table").inner_text()


def test_the_evidence_leads_with_the_price_of_the_search(private):
    seen, rows = private
    text = words(evidence(seen, rows))
    choice, guarantee = re.search(r"The choice (Trial .*?) The guarantee, and what it rests on (.*?) What is not guaranteed", text).groups()
    assert re.search(r"spread over repeats true ε \(release\) of the whole search: what holds [\d.]+ none true ε \(release\), one training [\d.]+", choice)
    assert guarantee.startswith("The search trained on private data. All of it together: ε = ")
    assert guarantee.count("One training alone: ε = ") == 1
    assert guarantee.count("Poisson sampling: the noise") == 1


def test_where_data_are_public_nothing_is_said_of_a_whole_search(private):
    seen, _ = private
    problem = seen.study.problem
    public = replace(seen, study=replace(seen.study, problem=replace(problem, privacy=replace(problem.privacy, private_data=False))))
    assert search_epsilons(public) == {}
    assert page_data(public)["search"] is None


def test_a_search_without_a_bound_is_called_no_promise(shown, private):
    tab = shown(private[0])
    tab.evaluate("() => { data.search.epsilon = {}; draw(); }")
    assert "No promise: the search trained on private data, and no bound is known for it." in tab.locator("#epsilons").inner_text()
    assert tab.locator("#chosen b").first.inner_text() == "none"
