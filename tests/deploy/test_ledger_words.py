"""What `fedpareto ledger` says of a ledger."""

from __future__ import annotations

import json

import pytest

from fedpareto.contract import Round
from fedpareto.deploy import ledger
from fedpareto.deploy.pricing import planned, price, terms_of
from fedpareto.deploy.said import words
from fedpareto.privacy import Privacy

TERMS = terms_of(Round(6, 3.0, noise=0.8, norm=1.0), Privacy(), 3, 1e-5)


def run(path, rounds, side="server", odd=(), terms=TERMS):
    """Write a ledger whose rounds in odd lack one answer."""
    with ledger.begin(path, ledger.header(side, "ab" * 32, terms, planned(terms))) as book:
        for t in rounds:
            attempt = book.began(t, [0, 1, 2], 1.0)
            answered = [1, 2] if t in odd else [0, 1, 2]
            book.ended(t, attempt, answered, [0.8] * len(answered), 1.0, float(len(answered)))
    return path


def test_the_command_prints_what_was_spent_beside_the_plan(tmp_path, fedpareto):
    path = run(tmp_path / "ledger.jsonl", range(3))
    said = fedpareto("ledger", path)
    assert said.status == 0
    assert said.out.startswith("3 of 3 planned rounds ended.\n")
    lines = [line for line in said.out.splitlines() if line.startswith("ε = ")]
    assert [line.split()[2] for line in lines] == [line.split()[4] for line in lines]  # spent and planned
    assert len(lines) == 3


def test_the_json_has_the_promised_shape(tmp_path, fedpareto):
    path = run(tmp_path / "ledger.jsonl", range(4), odd=[1])
    found = json.loads(fedpareto("ledger", path, "--json").out)
    assert found["ledger"] == price(path)
    assert list(found["ledger"]["server"]) == ["epsilon", "planned"]
    assert (found["rounds"], found["attempts"], found["side"], found["torn"]) == (4, 4, "server", 0)
    assert found["unplanned"] == ["4 rounds were run, 3 were planned.", "Round 2: 1 of 3 did not answer, 0 were planned."]


def test_what_was_not_as_planned_is_named_and_the_rest_counted(tmp_path):
    path = run(tmp_path / "ledger.jsonl", range(3), odd=range(3))
    with ledger.open(path) as book:
        for t in range(10, 14):
            book.began(t, [0, 1], 1.0)
    said = words(path)
    assert "3 of 3 planned rounds ended, 4 more attempts." in said
    assert "Round 11: begun and not ended; counted as if all asked had answered." in said
    assert said[-2] == "And 7 more that were not as planned."
    with path.open("ab") as file:
        file.write(b"half a row")
    assert any("Half a row that a kill left was cut off (1 in all)" in line for line in words(path))


def test_a_clients_ledger_says_what_it_cannot_know(tmp_path):
    said = words(run(tmp_path / "mine.jsonl", range(2), "client"))
    assert sum(line.startswith("ε = ") for line in said) == 1
    assert any(line.startswith("This is the ledger of one client") for line in said)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_without_noise_it_says_that_nothing_bounds_epsilon(tmp_path, sampling):
    terms = terms_of(Round(6, 3.0, sampling), Privacy(), 3, 1e-5)
    with ledger.begin(tmp_path / "l", ledger.header("server", "ab" * 32, terms, planned(terms))) as book:
        book.ended(0, book.began(0, []), [], None, None, 3.0)
    assert sum("nothing bounds it" in line for line in words(tmp_path / "l")) == 3


def test_an_error_is_one_line(tmp_path, fedpareto):
    said = fedpareto("ledger", tmp_path / "none")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("error: ")
