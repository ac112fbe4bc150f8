"""How much to train: trials again only while noise matters, which follows from the rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpareto import Random, Study, run, verify, view
from fedpareto.errors import SettingError
from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.loop import known
from fedpareto.noise import rng
from fedpareto.optimizers import Bayesian, spending
from fedpareto.optimizers.surrogate import fit, torch_alone
from fedpareto.problem import Objective, feasible, reference
from fedpareto.report.evidence import evidence
from fedpareto.report.page import page_data
from fedpareto.report.text import front_csv, front_data
from fedpareto.space import Float, Space


@dataclass(frozen=True)
class Noisy:
    """Error measured with noise, leakage known; an odd rate is far off the front."""

    noise: float = 0.02
    block: int = 4

    failures = {}  # noqa: RUF012
    space = Space((Float("sigma", 0.0, 1.0), Float("rate", 0.0, 1.0)))
    objectives = (Objective("error", reference=0.9), Objective("leakage", limit=0.9, reference=0.9))

    def known(self, values, names=("leakage",)):
        return {"leakage": 1 - np.sqrt(np.asarray(values["sigma"], dtype=float))}

    def truth(self, values):
        sigma, rate = (np.asarray(values[name], dtype=float) for name in self.space.names)
        return np.stack([0.1 + 0.5 * sigma + 2 * (rate - 0.4) ** 2, self.known(values)["leakage"]], axis=1)

    def measure(self, values, seeds):
        luck = [rng(seed, *map(repr, row)).standard_normal() for seed, *row in zip(seeds, *values.values(), strict=True)]
        return {"error": self.truth(values)[:, 0] + self.noise * np.array(luck), **self.known(values)}


@dataclass(frozen=True)
class Thrifty:
    """Random points, trained as the rules say."""

    batch: int = 5
    start: int = 5

    def propose(self, problem, history, n, seed):
        return Random(batch=self.batch).propose(problem, history, n, seed)

    def worth_repeating(self, problem, history, tried):
        return spending.worth_repeating(problem, history, tried) if len(history) >= self.start else np.ones(len(tried), dtype=bool)


def rows(db):
    with closing(sqlite3.connect(db)) as connection, connection:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in ("study", "trials", "repeats")}


def study_of(problem, optimizer, budget=40, repeats=4):
    return Study("spending", problem, optimizer, budget=budget, seed=1, repeats=repeats)


def reached(study, store):
    """The hypervolume, without noise, of what the study takes for its front."""
    front = view(study, store.trials()).front
    y = study.problem.truth({name: [p.settings[name] for p in front] for name in study.problem.space.names})
    return hypervolume(y[feasible(study.problem.objectives, y)], reference(study.problem.objectives))


class Killed(Exception):
    pass


def run_killed(study, db, every):
    """Run a study that is killed after every few blocks, until it is done."""
    for _ in range(200):
        calls = []

        def watch(store, calls=calls):
            calls.append(store)
            if len(calls) == every:
                raise Killed

        try:
            run(study, db, watch=watch).close()
            return
        except Killed:
            pass
    raise AssertionError("never done")


@pytest.fixture(scope="module")
def thrifty(tmp_path_factory):
    study, path = study_of(Noisy(), Thrifty()), tmp_path_factory.mktemp("thrifty") / "a.db"
    run(study, path).close()
    return study, path


def test_fewer_trainings_reach_the_same_front(thrifty, tmp_path):
    study, path = thrifty
    with run(replace(study, optimizer=Random(batch=5)), tmp_path / "all.db") as store:
        assert store.trainings() == 160
        whole = reached(study, store)
    with run(study, path) as store:
        assert store.trainings() < 0.7 * 160
        assert reached(study, store) > 0.995 * whole


def test_every_point_of_the_front_has_all_its_trainings(thrifty):
    study, path = thrifty
    with run(study, path) as store:
        seen, runs = view(study, store.trials()), [t.runs for t in store.trials()]
    assert {p.runs for p in seen.front} == {4}
    assert runs[:5] == [4] * 5
    assert min(runs) == 1
    assert seen.trainings == sum(runs)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_study_killed_between_repeats_ends_where_it_would_have(thrifty, tmp_path, every):
    study, path = thrifty
    run_killed(study, tmp_path / "killed.db", every)
    assert rows(tmp_path / "killed.db") == rows(path)


@pytest.mark.parametrize("first", [3, 12])
def test_a_raised_budget_continues_exactly(thrifty, tmp_path, first):
    study, path = thrifty
    run(replace(study, budget=first), tmp_path / "raised.db").close()
    run(study, tmp_path / "raised.db").close()
    assert rows(tmp_path / "raised.db") == rows(path)


def test_verify_agrees_and_finds_a_trial_trained_too_rarely(thrifty, tmp_path):
    study, path = thrifty
    with run(study, path) as store:
        assert list(verify(study, store)) == []
        often, rarely = (next(t.number for t in store.trials()[5:] if t.runs == runs) for runs in (4, 1))
    tampered = tmp_path / "tampered.db"
    tampered.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(tampered)) as db, db:
        db.execute("DELETE FROM repeats WHERE trial = ? AND repeat > 1", (often,))
        db.execute("INSERT INTO repeats SELECT trial, 1, measures, error, curves, NULL FROM repeats WHERE trial = ?", (rarely,))
        db.execute("UPDATE trials SET checksum = NULL")  # changed by hand, and meant
    with run(study, tampered) as store:
        wrong = list(verify(study, store))
    assert f"trial {often}: must be trained again after 2 times, found 2" in wrong
    assert f"trial {rarely}: must not be trained again after 1 times, found 2" in wrong


def test_without_noise_one_training_is_enough(tmp_path):
    with run(study_of(Noisy(noise=0.0), Thrifty(), budget=15, repeats=3), tmp_path / "a.db") as store:
        assert [t.runs for t in store.trials()] == [3] * 5 + [1] * 10
        assert {t.state for t in store.trials()} == {"done"}


def tried_of(y, runs, limited=None):
    beside = np.empty((len(y), 0)) if limited is None else limited
    return History(np.full((len(y), 2), 0.5), y, np.zeros(len(y), dtype=np.int64), runs=np.array(runs), limited=beside)


def test_so_long_as_the_noise_is_not_known_all_that_was_measured_is_trained_again():
    history = History(np.full((2, 2), 0.5), np.full((2, 2), np.nan), np.zeros(2, dtype=np.int64))
    y = np.array([[0.9, 0.9], [np.nan, 0.2]])
    assert spending.worth_repeating(Noisy(), history, tried_of(y, [1, 1])).tolist() == [True, False]


def test_noise_is_pooled_over_trials_and_none_where_an_objective_is_known():
    history = History(np.full((3, 2), 0.5), np.full((3, 2), 0.5), np.zeros(3, dtype=np.int64), runs=np.array([3, 2, 1]),
                      spread=np.array([[0.1, 0.3], [0.2, 0.3], [np.nan, np.nan]]))
    assert spending.noise_of(Noisy(), history).tolist() == pytest.approx([np.sqrt((2 * 0.1**2 + 0.2**2) / 3), 0.0])
    rounding = replace(history, spread=np.array([[1e-17, 0.0]] * 3))
    assert spending.noise_of(Noisy(), rounding).tolist() == [0.0, 0.0]


def test_a_trial_is_trained_again_while_two_standard_errors_could_bring_it_to_the_front():
    history = History(np.full((2, 2), 0.5), np.array([[0.3, 0.5], [0.1, 0.95]]), np.zeros(2, dtype=np.int64), runs=np.array([3, 3]),
                      spread=np.full((2, 2), 0.1))
    y = np.array([[0.45, 0.5], [0.45, 0.5], [0.51, 0.5], [0.9, 0.4], [0.9, 0.91]])  # on the front but for 0.15 (1 and 3 times), 0.21; limit
    assert spending.worth_repeating(Noisy(), history, tried_of(y, [1, 3, 1, 1, 1])).tolist() == [True, False, False, True, False]


def test_a_history_whose_runs_disagree_with_its_rows_is_refused():
    with pytest.raises(SettingError, match=r"history: runs must be of shape \(3,\), found \(2,\)\."):
        History(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(3, dtype=np.int64), runs=np.ones(2, dtype=np.int64))


def test_other_optimizers_train_every_trial_as_often_as_the_study_says(tmp_path):
    with run(study_of(Noisy(), Random(batch=5), budget=10, repeats=3), tmp_path / "a.db") as store:
        assert [t.runs for t in store.trials()] == [3] * 10
        assert known(study_of(Noisy(), Random()), store).runs.tolist() == [3] * 10


def test_bayesian_trains_all_of_it_unless_told(tmp_path):
    optimizer = Bayesian(batch=5, candidates=100)
    for thrift, fewer in ((optimizer, False), (replace(optimizer, repeat_all=False), True)):
        study = study_of(Noisy(noise=0.0), thrift, budget=10, repeats=2)
        with run(study, tmp_path / f"{fewer}.db") as store:
            assert [t.runs for t in store.trials()] == [2] * 5 + [1 if fewer else 2] * 5
            assert list(verify(study, store)) == []


def test_a_mean_of_fewer_trainings_weighs_less():
    draw = np.random.default_rng(0)
    space, x = Noisy.space, draw.random((40, 2))
    runs = np.repeat([5, 1], 20)
    y = np.sin(4 * x[:, 0]) + 0.2 * draw.normal(size=40) / np.sqrt(runs)
    with torch_alone(0):
        weighed, equal = fit(space, x, y, runs=runs), fit(space, x, y)
    at = draw.random((200, 2))
    miss = [np.abs(s.predict(at)[0] - np.sin(4 * at[:, 0])).mean() for s in (weighed, equal)]
    assert miss[0] < miss[1]
    assert weighed.noise == pytest.approx(0.2 / np.sqrt(5), rel=0.4)


def test_where_all_are_trained_as_often_the_process_is_what_it_was():
    draw = np.random.default_rng(0)
    x = draw.random((12, 2))
    y = x.sum(axis=1) ** 2
    with torch_alone(0):
        plain = fit(Noisy.space, x, y)
    with torch_alone(0):
        told = fit(Noisy.space, x, y, runs=np.full(12, 3))
    assert np.array_equal(plain.predict(x)[0], told.predict(x)[0])
    assert (plain.variance, plain.share) == (told.variance, told.share)


def test_reports_say_of_how_many_trainings_a_point_is_the_mean(thrifty):
    study, path = thrifty
    with run(study, path) as store:
        seen, trials = view(study, store.trials()), store.trials()
    assert {p["runs"] for p in front_data(seen)["points"]} == {4}
    assert front_csv(seen).splitlines()[0].endswith(",runs")
    assert sorted(set(page_data(seen)["points"]["runs"])) == sorted({t.runs for t in trials})
    assert f"at most 4 times, {sum(t.runs for t in trials)} trainings in all" in evidence(seen, trials)


@pytest.mark.parametrize("answer", [np.ones(1, dtype=bool), np.ones(4), None])
def test_an_optimizer_that_answers_nonsense_is_told_so(tmp_path, answer):
    @dataclass(frozen=True)
    class Odd(Thrifty):
        def worth_repeating(self, problem, history, tried):
            return answer

    with pytest.raises(SettingError, match="worth_repeating must answer true or false for each of 4 rows, found"):
        run(study_of(Noisy(), Odd(batch=4), budget=4), tmp_path / "a.db")
