"""How much to train: trials again only while noise matters, hopeless runs not to their end; and all of it follows from the rows."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpareto import Random, Study, load_study, run, verify, view
from fedpareto.errors import SettingError
from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.loop import known
from fedpareto.noise import rng
from fedpareto.optimizers import Bayesian, spending
from fedpareto.optimizers.composite import learn
from fedpareto.optimizers.surrogate import fit, torch_alone
from fedpareto.problem import STOPPED, Objective, feasible, reference
from fedpareto.report.evidence import evidence
from fedpareto.report.page import page_data
from fedpareto.report.text import front_csv, front_data, summary
from fedpareto.space import Float, Integer, Space


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
class Runs:
    """Error falls with the rounds, to a floor that the rate decides; bytes are known. Runs may be stopped."""

    noise: float = 0.003
    block: int = 3

    failures = {}  # noqa: RUF012
    free = "rounds"
    space = Space((Float("rate", 0.0, 1.0), Integer("rounds", 4, 40)))
    objectives = (Objective("error"), Objective("bytes", reference=41.0))

    def known(self, values, names=("bytes",)):
        return {"bytes": np.asarray(values["rounds"], dtype=float)}

    def measure(self, values, seeds):
        rate, rounds = (np.asarray(values[name], dtype=float) for name in self.space.names)
        luck = np.array([rng(seed, *map(repr, row)).standard_normal() for seed, *row in zip(seeds, rate, rounds, strict=True)])
        floor = 0.1 + 0.6 * np.abs(rate - 0.3)
        return {"error": floor + (0.9 - floor) * np.exp(-rounds / 6) + self.noise * luck, **self.known(values)}

    def measure_along(self, values, seeds, go_on=None):
        n, last = len(seeds), np.asarray(values["rounds"])
        way = {name: np.full((n, last.max()), np.nan) for name in ("error", "bytes")}
        stopped = np.full(n, np.nan)
        for t in range(1, last.max() + 1):
            rows = np.flatnonzero((last >= t) & np.isnan(stopped))
            then = self.measure({"rate": [values["rate"][i] for i in rows], "rounds": [t] * len(rows)}, [seeds[i] for i in rows])
            for name, column in then.items():
                way[name][rows, t - 1] = column
            asked = rows[(last[rows] + 1) // 2 == t]
            if go_on is not None and len(asked):
                stopped[asked[~go_on(asked, t, {name: column[asked, :t] for name, column in way.items()})]] = t
        ends = {name: np.where(np.isnan(stopped), column[np.arange(n), last - 1], np.nan) for name, column in way.items()}
        return ends | ({} if go_on is None else {STOPPED: stopped}), way


@dataclass(frozen=True)
class Thrifty:
    """Random points, trained as the rules say."""

    batch: int = 5
    start: int = 5

    def propose(self, problem, history, n, seed):
        return Random(batch=self.batch).propose(problem, history, n, seed)

    def worth_repeating(self, problem, history, x, y, runs):
        return spending.worth_repeating(problem, history, y, runs) if len(history) >= self.start else np.ones(len(x), dtype=bool)

    def hopeless(self, problem, history, seed):
        if len(history) < self.start or not hasattr(problem, "free"):
            return None
        with torch_alone(seed):
            return spending.hopeless(problem, history, 10)


def rows(db):
    with sqlite3.connect(db) as connection:
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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    study, path = study_of(Runs(), Thrifty(), budget=20, repeats=2), tmp_path_factory.mktemp("stopped") / "a.db"
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
    with sqlite3.connect(tampered) as db:
        db.execute("DELETE FROM repeats WHERE trial = ? AND repeat > 1", (often,))
        db.execute("INSERT INTO repeats SELECT trial, 1, measures, error, curves FROM repeats WHERE trial = ?", (rarely,))
    with run(study, tampered) as store:
        wrong = list(verify(study, store))
    assert f"trial {often}: must be trained again after 2 times, found 2" in wrong
    assert f"trial {rarely}: must not be trained again after 1 times, found 2" in wrong


def test_without_noise_one_training_is_enough(tmp_path):
    with run(study_of(Noisy(noise=0.0), Thrifty(), budget=15, repeats=3), tmp_path / "a.db") as store:
        assert [t.runs for t in store.trials()] == [3] * 5 + [1] * 10
        assert {t.state for t in store.trials()} == {"done"}


def test_so_long_as_the_noise_is_not_known_all_that_was_measured_is_trained_again():
    history = History(np.full((2, 2), 0.5), np.full((2, 2), np.nan), np.zeros(2, dtype=np.int64))
    y = np.array([[0.9, 0.9], [np.nan, 0.2]])
    assert spending.worth_repeating(Noisy(), history, y, np.ones(2, dtype=np.int64)).tolist() == [True, False]


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
    runs = np.array([1, 3, 1, 1, 1])
    assert spending.worth_repeating(Noisy(), history, y, runs).tolist() == [True, False, False, True, False]


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
    told = [weighed.told(np.array([[0.5, 0.5]]), np.array([5.0]), share).predict(np.array([[0.5, 0.5]]))[0][0] for share in (0.2, 1.0)]
    assert told[0] < told[1]


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
        def worth_repeating(self, problem, history, x, y, runs):
            return answer

    with pytest.raises(SettingError, match="worth_repeating must answer true or false for each of 4 rows, found"):
        run(study_of(Noisy(), Odd(batch=4), budget=4), tmp_path / "a.db")


def test_hopeless_runs_end_early_and_are_recorded_with_what_they_showed(stopped):
    study, path = stopped
    with run(study, path) as store:
        trials, history, seen = store.trials(), known(study, store), view(study, store.trials())
    ended = [t for t in trials if t.state == "stopped"]
    assert 2 <= len(ended) < 15
    assert not [t for t in trials if t.state == "failed"]
    for trial in ended:
        t = int(trial.measures[STOPPED])
        assert trial.error == f"stopped after round {t}: no later round was expected to reach the front"
        assert t < trial.settings["rounds"]
        assert np.isfinite(trial.curves["error"][:t]).all()
        assert np.isnan(trial.curves["error"][t:]).all()
        assert trial.runs == 1
        assert (history.free_of == trial.number).sum() == t - 3  # rounds 4 to t
    assert history.stopped.tolist() == [t.state == "stopped" for t in trials]
    assert history.failed[history.stopped].all()
    assert not {p.trial for p in seen.front} & {t.number for t in ended}
    assert f", {len(ended)} stopped early;" in summary(seen)
    assert page_data(seen)["stopped"] == len(ended)


def test_what_was_stopped_could_not_have_reached_the_front(stopped, tmp_path):
    study, path = stopped
    whole = replace(study, optimizer=Random(batch=5))
    with run(whole, tmp_path / "whole.db") as store:
        front = {p.trial for p in view(whole, store.trials()).front}
    with run(study, path) as store:
        assert not front & {t.number for t in store.trials("stopped")}


@pytest.mark.parametrize("block", [1, 2, 100])
def test_a_run_is_stopped_whatever_its_neighbours_do(stopped, tmp_path, block):
    study, path = stopped
    run(replace(study, problem=replace(study.problem, block=block)), tmp_path / "b.db").close()
    assert rows(tmp_path / "b.db")["trials"] == rows(path)["trials"]


def test_a_study_with_stopped_runs_resumes_and_verifies(stopped, tmp_path):
    study, path = stopped
    run_killed(study, tmp_path / "killed.db", 3)
    assert rows(tmp_path / "killed.db") == rows(path)
    run(replace(study, budget=7), tmp_path / "raised.db").close()
    with run(study, tmp_path / "raised.db") as store:
        assert list(verify(study, store)) == []
    assert rows(tmp_path / "raised.db") == rows(path)


def test_verify_finds_a_run_that_should_not_have_been_stopped(stopped, tmp_path):
    study, path = stopped
    tampered = tmp_path / "tampered.db"
    tampered.write_bytes(path.read_bytes())
    with sqlite3.connect(tampered) as db:
        (number,) = db.execute("SELECT max(number) FROM trials WHERE state = 'stopped'").fetchone()
        db.execute("UPDATE trials SET curves = json_set(curves, '$.error[3]', 0.01) WHERE number = ?", (number,))
    with run(study, tampered) as store:
        (line,) = [line for line in verify(study, store) if line.startswith(f"trial {number}:")]
    assert line.endswith("found it stopped")


def test_a_stopped_run_is_not_learned_as_a_failure(stopped):
    study, path = stopped
    with run(study, path) as store:
        history = known(study, store)
    with torch_alone(0):
        told, failed = (learn(study.problem, h, 5) for h in (history, replace(history, stopped=np.zeros(len(history), dtype=bool))))
    ends = history.x[history.stopped]
    truth = replace(study.problem, noise=0.0).measure(study.problem.space.decode(ends), [0] * len(ends))["error"]
    miss = [np.abs(model.predict(ends)[0][:, 0] - truth).max() for model in (told, failed)]
    assert miss[0] < miss[1]


def test_federations_go_on_or_end_by_themselves(tiny_study):
    text = tiny_study.read_text().replace("rounds = 1\n", "rounds = [1, 12]\n").replace("budget = 2", "budget = 2\nblock = 3")
    tiny_study.write_text(text)
    problem = load_study(tiny_study).problem
    values = {"learning_rate": [0.1, 0.2, 0.3], "rounds": [12, 8, 3], "sigma": [0.1, 0.5, 0.1], "clipping_norm": [1.0, 2.0, 1.0]}
    plain, curves = problem.measure_along(values, [1] * 3)
    asked = []

    def go_on(rows, t, shown):
        asked.append((rows.tolist(), t))
        for name, column in shown.items():
            np.testing.assert_array_equal(column, curves[name][rows, :t])
        return (rows != 0) | (t < 6)

    measured, way = problem.measure_along(values, [1] * 3, go_on)
    assert asked == [([2], 1), ([1, 2], 2), ([0], 3), ([1], 4), ([0, 1], 6)]
    assert measured.pop(STOPPED).tolist()[0] == 6
    assert all(np.isnan(column[0]) for column in measured.values())
    for name, column in measured.items():
        np.testing.assert_array_equal(column[1:], plain[name][1:])
    for name, column in way.items():
        np.testing.assert_array_equal(column[1:], curves[name][1:])
        np.testing.assert_array_equal(column[0, :6], curves[name][0, :6])
        assert np.isnan(column[0, 6:]).all()


def test_a_block_ends_when_all_of_it_does(tiny_study, monkeypatch):
    from fedpareto.federation import rounds

    text = tiny_study.read_text().replace("rounds = 1\n", "rounds = [1, 12]\n").replace("budget = 2", "budget = 2\nblock = 2")
    tiny_study.write_text(text)
    problem, trained = load_study(tiny_study).problem, []
    once = rounds.Run.round
    monkeypatch.setattr(rounds.Run, "round", lambda self, t, tally: trained.append(t) or once(self, t, tally))
    values = {"learning_rate": [0.1, 0.2], "rounds": [12, 8], "sigma": [0.1, 0.5], "clipping_norm": [1.0, 2.0]}
    measured, way = problem.measure_along(values, [1] * 2, lambda rows, t, shown: np.zeros(len(rows), dtype=bool))
    assert measured[STOPPED].tolist() == [3.0, 2.0]
    assert trained == [0, 1, 2]
    assert way["test_error"].shape == (2, 12)


def test_bayesian_stops_hopeless_federations_if_told(tiny_study, tmp_path):
    text = tiny_study.read_text().replace("rounds = 1\n", "rounds = [2, 12]\n").replace("budget = 2", "budget = 10\nblock = 1")
    tiny_study.write_text(text.split("[optimizer]")[0] + "[optimizer]\nname = \"bayesian\"\ncandidates = 100\nstop_hopeless = true\n")
    study = load_study(tiny_study)
    with run(study, tmp_path / "a.db") as store:
        assert {t.state for t in store.trials()} <= {"done", "stopped"}
        assert list(verify(study, store)) == []
    run_killed(study, tmp_path / "killed.db", 2)
    assert rows(tmp_path / "killed.db") == rows(tmp_path / "a.db")
