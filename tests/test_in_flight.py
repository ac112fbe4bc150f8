"""Batches that overlap: what is proposed follows from rows that are surely known, whatever was faster."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.make import STUDIES, study
from test_resume import SEARCHED, SMALL
from test_spending import Noisy, Thrifty, study_of

from fedpareto import History, Random, Store, Study, load_study, run, verify
from fedpareto.errors import SettingError, StudyError
from fedpareto.evaluate import blocks_of, results_of
from fedpareto.executors import More
from fedpareto.front import nondominated
from fedpareto.optimizers import OPTIMIZERS, Psl, QLogNehvi, composite
from fedpareto.optimizers.bayesian import Bayesian, apart
from fedpareto.problem import Problem
from fedpareto.rescue import rescue
from fedpareto.testing import continuous
from fedpareto.trials import Result


def rows(db: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(db)) as connection, connection:
        return {t: connection.execute(f"SELECT * FROM {t} ORDER BY 1, 2").fetchall() for t in ("study", "trials", "repeats")}


def shuffled(seed: int, most: int = 10**9) -> Callable[..., Iterator[Sequence[Result]]]:
    """Return an executor that takes all it may have, and ends blocks in a random order; it is killed after so many."""
    luck, left = random.Random(seed), [most]

    def executor(problem: Problem, more: More, seed: int) -> Iterator[Sequence[Result]]:
        blocks: list[Any] = []
        while True:
            while trials := more():
                blocks += blocks_of(problem, trials)
            if not blocks:
                return
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            yield results_of(problem, blocks.pop(luck.randrange(len(blocks))), seed)

    return executor


def searched(tmp_path: Path, name: str, in_flight: int, more: str = "") -> Study:
    path = tmp_path / f"{name}.toml"
    text = SEARCHED.replace("budget = 12", f"budget = 16\nin_flight = {in_flight}").replace("block = 2", f"block = 2{more}")
    path.write_text(f'{text}name = "{name}"\n{SMALL[name]}\n')
    return load_study(path)


@pytest.mark.parametrize(("name", "in_flight"), [
    pytest.param(name, L, marks=[] if L == 1 and name in ("bayesian", "grid", "nsga2") else [pytest.mark.slow])
    for name in OPTIMIZERS for L in (1, 2)])
def test_rows_do_not_depend_on_what_is_faster(tmp_path: Path, name: str, in_flight: int) -> None:
    asked = searched(tmp_path, name, in_flight)
    run(asked, tmp_path / "in-turn.db").close()
    with run(asked, tmp_path / "shuffled.db", evaluate=shuffled(in_flight)) as store:
        assert list(verify(asked, store)) == []
        assert len({t.point for t in store.trials()}) == 16
    assert rows(tmp_path / "in-turn.db") == rows(tmp_path / "shuffled.db")


@pytest.mark.parametrize(("name", "in_flight"), [
    pytest.param(name, L, marks=[] if (name, L) in (("chain", 1), ("sparsification", 4)) else [pytest.mark.slow])
    for name in STUDIES for L in (0, 1, 4)])
def test_golden_studies_end_the_same_in_any_order_wherever_they_stop(tmp_path: Path, name: str, in_flight: int) -> None:
    kept = study(name)
    asked = replace(kept, in_flight=in_flight, description=kept.description | {"in_flight": in_flight})
    run(asked, tmp_path / "alone.db").close()
    for stop in range(1, 4):
        try:
            run(replace(asked, budget=max(1, asked.budget // (4 - stop))), tmp_path / "often.db", evaluate=shuffled(stop, 2 * stop)).close()
        except KeyboardInterrupt:
            continue
    with run(asked, tmp_path / "often.db", evaluate=shuffled(7)) as store:
        assert list(verify(asked, store)) == []
    assert rows(tmp_path / "alone.db") == rows(tmp_path / "often.db")


def test_a_choice_of_what_to_train_again_does_not_depend_on_what_is_faster(tmp_path: Path) -> None:
    asked = replace(study_of(Noisy(), Thrifty(), budget=30, repeats=3), in_flight=1)
    with run(asked, tmp_path / "in-turn.db") as store:
        runs = [t.runs for t in store.trials()]
        assert min(runs) < max(runs) == 3
    with run(asked, tmp_path / "shuffled.db", evaluate=shuffled(5)) as store:
        assert list(verify(asked, store)) == []
    assert rows(tmp_path / "in-turn.db") == rows(tmp_path / "shuffled.db")


@pytest.mark.parametrize("first", [6])
def test_a_raised_budget_continues_exactly(tmp_path: Path, first: int) -> None:
    asked = searched(tmp_path, "nsga2", 2)
    run(asked, tmp_path / "whole.db").close()
    run(replace(asked, budget=first), tmp_path / "raised.db", evaluate=shuffled(3)).close()
    run(asked, tmp_path / "raised.db", evaluate=shuffled(4)).close()
    assert rows(tmp_path / "whole.db") == rows(tmp_path / "raised.db")


def test_a_study_under_way_verifies_as_far_as_it_is_known(tmp_path: Path) -> None:
    asked = searched(tmp_path, "nsga2", 1)
    with pytest.raises(KeyboardInterrupt):
        run(asked, tmp_path / "way.db", evaluate=shuffled(2, 3))
    with Store.read(tmp_path / "way.db") as store:
        assert list(verify(asked, store)) == []
        changed = store.trials()[-1]
    with closing(sqlite3.connect(tmp_path / "way.db")) as db, db:
        db.execute("UPDATE trials SET settings = json_set(settings, '$.sigma', 0.5), checksum = NULL WHERE number = ?", (changed.number,))
    with Store.read(tmp_path / "way.db") as store:
        assert [line.split(":")[0] for line in verify(asked, store)] == [f"trial {changed.number}"]


def test_a_lost_row_is_proposed_again_from_the_rows_that_it_followed(tmp_path: Path) -> None:
    asked = searched(tmp_path, "nsga2", 1)
    run(asked, tmp_path / "whole.db").close()
    before = rows(tmp_path / "whole.db")
    with closing(sqlite3.connect(tmp_path / "whole.db")) as db, db:
        db.execute("UPDATE repeats SET measures = '{}' WHERE trial = 5")
        db.execute("DELETE FROM trials WHERE number = 9")
    found = rescue(lambda seed: asked, tmp_path / "whole.db", tmp_path / "rescued.db")
    assert (found.pending, found.proposed, found.aside) == ([5], [9], [])  # 9 is of batch 2, which follows from batch 0 and points of 1
    with run(asked, tmp_path / "rescued.db") as store:
        assert list(verify(asked, store)) == []
    assert rows(tmp_path / "rescued.db") == before


def test_batches_overlap_as_far_as_is_asked_and_no_further(tmp_path: Path) -> None:
    two = continuous(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1), 2, 2)
    for in_flight in (0, 1, 3):
        most = [0]

        def watched(problem: Problem, more: More, seed: int, most: list[int] = most) -> Iterator[Sequence[Result]]:
            waiting: list[Any] = []
            while True:
                while trials := more():
                    waiting += [[(t, 0)] for t in trials]
                if not waiting:
                    return
                most[0] = max(most[0], len(waiting))
                yield results_of(problem, waiting.pop(0), seed)

        run(Study("overlap", two, Random(batch=4), budget=32, in_flight=in_flight), tmp_path / f"{in_flight}.db", evaluate=watched).close()
        assert most[0] == 4 * (in_flight + 1)


def test_what_is_in_flight_makes_another_study_and_nothing_in_flight_the_same(tmp_path: Path) -> None:
    plain, asked = searched(tmp_path, "nsga2", 0), searched(tmp_path, "random", 0)
    assert "in_flight" not in plain.identity
    assert "in_flight" not in Study("made", asked.problem, asked.optimizer, 4).identity
    assert Study("made", asked.problem, asked.optimizer, 4, in_flight=2).identity["in_flight"] == 2
    overlapping = searched(tmp_path, "nsga2", 2)
    assert overlapping.identity == plain.identity | {"in_flight": 2}
    with pytest.raises(SettingError, match="in_flight must be at least 0, found -1"):
        replace(plain, in_flight=-1)
    with pytest.raises(StudyError, match="in_flight: must be at least 0, found -1"):
        searched(tmp_path, "nsga2", -1)


def test_what_is_under_way_is_believed_at_the_mean() -> None:
    """Without it, the best point would be proposed again and again."""
    problem = continuous(lambda x: np.stack([x[:, 0], 1 + x[:, 1] - np.sqrt(x[:, 0])], axis=1), 2, 2)
    x = problem.space.snap(np.random.default_rng(0).random((10, 2)))
    history = History(x, problem.function(x), np.repeat([0, 1], 5))
    optimizer = Bayesian()
    chosen = problem.space.snap(optimizer.propose(problem, history, 3, 0))
    blind = problem.space.snap(optimizer.propose(problem, history, 1, 7))
    minding = problem.space.snap(optimizer.propose(problem, replace(history, pending=chosen), 1, 7))
    nearest = [float(np.abs(chosen - point).max(axis=1).min()) for point in (blind[0], minding[0])]
    assert nearest[0] < 0.1 < nearest[1]


def test_first_points_keep_apart_from_those_under_way() -> None:
    x = np.array([[0.1], [0.5], [0.9]])
    assert apart(x, np.array([[0.45], [0.55]])).tolist() in ([[0.9]], [[0.1]])
    assert apart(x, np.empty((0, 1))).tolist() == x.tolist()


def test_pending_points_of_another_space_are_refused() -> None:
    with pytest.raises(SettingError, match=r"history: pending must be of shape \[p,2\], found \(3, 1\)"):
        History(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(1, np.int64), pending=np.zeros((3, 1)))


def test_of_very_many_trials_bayesian_learns_from_some_and_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    problem = continuous(lambda x: np.stack([x[:, 0], 1 + x[:, 1] - np.sqrt(x[:, 0])], axis=1), 2, 2)
    x = problem.space.snap(np.random.default_rng(0).random((60, 2)))
    history = History(x, problem.function(x), np.arange(60) // 5)
    monkeypatch.setattr(composite, "_said", [])
    assert composite.telling(history) is history
    monkeypatch.setattr(composite, "MOST", 40)
    told = composite.telling(history)
    assert len(told) == 40
    best = history.y[nondominated(history.y)]
    assert {*map(tuple, best)} <= {*map(tuple, told.y)}
    assert (np.diff(told.batch) >= 0).all()
    chosen = Bayesian(candidates=200).propose(problem, history, 2, 0)
    assert not {*map(tuple, chosen)} & {*map(tuple, x)}
    assert caplog.text.count("of 60 trials, processes learn from 40: the front, and others spread over all") == 1


@pytest.mark.parametrize("optimizer", [Psl(start=10, steps=5), QLogNehvi(start=10, restarts=2, steps=5)])
def test_other_optimizers_that_fit_processes_learn_from_as_many(optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = continuous(lambda x: np.stack([x[:, 0], 1 + x[:, 1] - np.sqrt(x[:, 0])], axis=1), 2, 2)
    x = problem.space.snap(np.random.default_rng(0).random((60, 2)))
    history = History(x, problem.function(x), np.arange(60) // 5)
    from_all = optimizer.propose(problem, history, 2, 0)
    assert optimizer.propose(problem, history, 2, 0).tolist() == from_all.tolist()
    monkeypatch.setattr(composite, "MOST", 40)
    assert optimizer.propose(problem, history, 2, 0).tolist() != from_all.tolist()


def test_some_rows_of_a_history_bring_what_their_runs_showed() -> None:
    x = np.arange(4.0)[:, None]
    history = History(x, x, np.arange(4), free_x=x[[0, 2, 2, 3]], free_y=x[[0, 2, 2, 3]], free_of=np.array([0, 2, 2, 3]))
    some = history.only(np.array([1, 2]))
    assert (some.x.tolist(), some.free_x.tolist(), some.free_of.tolist()) == ([[1.0], [2.0]], [[2.0], [2.0]], [1, 1])
