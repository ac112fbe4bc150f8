"""A guarantee has one number, that of its row, rounded up: in every table and in every sentence of page, evidence and card."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fedpareto import load_study, run, view
from fedpareto.privacy import rounded_up
from fedpareto.report.evidence import evidence
from fedpareto.report.page import page_data
from fedpareto.report.privacy import as_data, as_in_row, epsilon_text, guarantee_of, promises

from .test_evidence import words
from .test_what_holds import EXAMPLE


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """Two trials of the example as a search on public data, with less noise."""
    folder = tmp_path_factory.mktemp("public")
    text = EXAMPLE.read_text().replace("private_data = true", "private_data = false").replace("noise_multiplier = 3.0", "noise_multiplier = 2.5")
    (folder / "public.toml").write_text(text)
    study = replace(load_study(folder / "public.toml"), budget=2)
    with run(study) as store:
        yield view(study, store), store.trials()


def test_page_and_evidence_promise_what_the_row_says(shown, public):
    seen, rows = public
    row = {v: rounded_up(seen.recommended.measures[f"epsilon_{v}"]) for v in ("server", "secagg", "release")}
    more = guarantee_of(seen, seen.recommended)
    assert rounded_up(more.epsilon) != row["release"]  # a statement's accountant finds another, and a little less
    tab = shown(seen)
    promised = tab.locator("#promises").text_content()
    table = tab.locator("#epsilons").inner_text()
    text = words(evidence(seen, rows))
    guarantee = text.split("The guarantee, and what it rests on")[1]
    for said in (promised, guarantee):
        assert f"ε = {row['release']} at δ" in said
        assert f"The same point has ε {row['server']} for a server that sees each upload and {row['secagg']} for" in said
        assert f"gives {rounded_up(more.epsilon, 6)}" in said
    assert all(f"{float(e):g}" in table for e in row.values())
    assert re.search(rf"The front .* true ε \(release\) \d+ [\d.]+ {row['release']} The choice", text)
    assert f"true ε (release) {row['release']} " in text.split("The choice")[1]
    assert row["release"] in as_data(seen)["statement"]
    assert row["release"] in page_data(seen)["privacy"][0]


def test_an_epsilon_has_four_digits_and_never_rounds_down():
    assert [epsilon_text(v) for v in (1185.157, 9.048138, 0.015601, 2.0)] == ["1186", "9.049", "0.01561", "2.000"]


def test_a_row_that_is_less_than_what_is_proven_does_not_lower_a_promise(public):
    seen, _ = public
    more = guarantee_of(seen, seen.recommended)
    assert as_in_row(more, {"epsilon": more.epsilon / 2}) is more
    assert as_in_row(more, {}) is more
    assert as_in_row(more, {"epsilon": float("inf")}) is more
    assert as_in_row(more, {"epsilon": more.epsilon * (1 - 1e-12)}).accountant == more.accountant
    large = as_in_row(replace(more, epsilon=10.5, notes=("ε = 10.50 promises little on paper; below 10 is usual, below 1 is strong.",)), {"epsilon": 10.6})
    assert large.notes == ("ε = 10.60 promises little on paper; below 10 is usual, below 1 is strong.",)
    assert promises(seen, seen.recommended)[0].startswith("ε = ")
