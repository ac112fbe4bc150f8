"""Studies of very many trials: what is finished is read once, looked at as seldom as will do, and never held whole."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_in_flight import shuffled
from test_spending import Noisy, study_of

from fedpareto import Nsga2, Random, Store, run, verify
from fedpareto.history import History
from fedpareto.report import progress as shown
from fedpareto.report.progress import best_so_far, progress
from fedpareto.store import known as reading
from fedpareto.store.checks import Rows, check_rows
from fedpareto.trials import known_of


def same(a: History, b: History) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name), equal_nan=True) for f in fields(History))


def stopped(db: Path, blocks: int) -> Any:
    """Leave a study with trials that are finished, begun and pending, in no order."""
    asked = study_of(Noisy(), Random(batch=4), budget=40, repeats=2)
    asked = type(asked)(asked.name, asked.problem, asked.optimizer, 40, repeats=2, in_flight=2)
    with pytest.raises(KeyboardInterrupt):
        run(asked, db, evaluate=shuffled(3, blocks))
    return asked


@pytest.mark.parametrize("blocks", [1, 5, 14])
def test_counts_of_a_study_under_way_are_those_of_its_rows(tmp_path: Path, blocks: int) -> None:
    asked = stopped(tmp_path / "way.db", blocks)
    with Store.read(tmp_path / "way.db") as store:
        trials = store.trials()
        done = [t for t in trials if t.state != "pending"]
        assert (len(store), store.finished(), store.trainings()) == (len(trials), len(done), sum(t.runs for t in trials))
        assert store.settled() == next(t.number for t in trials if t.state == "pending")
        assert [t.number for t in store.trials("pending")] == [t.number for t in trials if t.state == "pending"]
        assert store.trials(first=2, end=6) == trials[2:6]
        assert same(store.known(asked.problem), known_of(asked.problem, trials))


def test_what_is_settled_is_read_once_and_what_is_not_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 3)
    asked = stopped(tmp_path / "way.db", 9)
    with Store.write(tmp_path / "way.db", asked.name, asked.identity, asked.repeats) as store:
        read: list[int] = []
        trials = store.trials
        monkeypatch.setattr(store, "trials", lambda *a, **k: [read.append(t.number) or t for t in trials(*a, **k)])
        first = store.known(asked.problem)
        settled = store.settled()
        assert sorted(set(read)) == list(range(len(store)))
        read.clear()
        assert same(store.known(asked.problem), first)
        assert min(read) == settled
    with run(asked, tmp_path / "way.db") as store:
        assert same(store.known(asked.problem), known_of(asked.problem, store.trials()))
        assert list(verify(asked, store)) == []


def test_rows_are_checked_without_being_held(tmp_path: Path) -> None:
    run(study_of(Noisy(), Random(batch=100), budget=1500), tmp_path / "many.db").close()
    with Store.read(tmp_path / "many.db") as store:
        held = peak_of(lambda: [list(Rows(store._db, table)) for table in ("trials", "repeats")])
        assert peak_of(lambda: check_rows(store.path, store._db)) < held / 3


def peak_of(work: Callable[[], object]) -> int:
    """Return the most bytes that Python held while something was done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_best_so_far_is_sought_seldom_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = study_of(Noisy(), Nsga2(population=4), budget=24)
    sought: list[int] = []

    def slow(study: Any, store: Store) -> str:
        sought.append(store.finished())
        return best_so_far(study, store)

    monkeypatch.setattr(shown, "best_so_far", slow)
    monkeypatch.setattr(shown, "REST", 1e9)
    with progress(asked, io.StringIO()) as watch:
        run(asked, tmp_path / "s.db", watch=watch).close()
    assert sought == [0, 24]  # trials finished


def test_verifying_tells_how_far_it_has_come(tmp_path: Path) -> None:
    asked = study_of(Noisy(), Random(batch=4), budget=10)
    told: list[int] = []
    with run(asked, tmp_path / "s.db") as store:
        assert list(verify(asked, store, told.append)) == []
    assert told == [4, 8, 10]
