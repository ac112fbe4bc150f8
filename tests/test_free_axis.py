"""Where rounds are searched, a run of T rounds is a run of every t < T too."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from fedpareto import load_study, run, verify, view
from fedpareto.loop import known
from fedpareto.store import MIGRATIONS, Store


@pytest.fixture
def study(tiny_study):
    text = tiny_study.read_text().replace("rounds = 1\n", "rounds = [1, 6]\n").replace("budget = 2", "budget = 6\nrepeats = 2")
    tiny_study.write_text(text)
    return load_study(tiny_study)


def test_curves_are_stored_and_end_in_the_trial_s_own_measures(study, tmp_path):
    with run(study, tmp_path / "a.db") as store:
        trials = store.trials()
    for trial in trials:
        assert set(trial.curves) == {"test_error", "kang23_eq13"}
        rounds = trial.settings["rounds"]
        assert trial.curves["test_error"][rounds - 1] == pytest.approx(trial.measures["test_error"], rel=1e-12)
        assert np.isnan(trial.curves["test_error"][rounds:]).all()


def test_a_point_on_the_way_is_what_a_run_that_ends_there_gives(study, tmp_path):
    with run(study, tmp_path / "a.db") as store:
        seen, history = view(study, store.trials()), known(study, store)
    longest = max(store_settings["rounds"] for store_settings in (p.settings for p in seen.points))
    assert len(history.free_of) >= longest - 1
    space = study.problem.space
    for x, y in zip(history.free_x[:3], history.free_y[:3], strict=True):
        settings = space.decode(x[None])
        again = [study.problem.measure(settings, [seed])["test_error"][0] for seed in seeds_of(study)]
        assert np.mean(again) == pytest.approx(y[0], rel=1e-6)
    assert all(p.feasible for p in seen.front)


def seeds_of(study):
    from fedpareto.noise import derive
    return [derive(study.seed, "repeat", r) for r in range(study.repeats)]


def test_the_front_counts_what_runs_showed_on_the_way(study, tmp_path):
    with run(study, tmp_path / "a.db") as store:
        seen = view(study, store.trials())
        ends = [t.measures for t in store.trials()]
    best = min(p.objectives["utility_loss"] for p in seen.points)
    assert best <= min(m["test_error"] for m in ends)
    assert seen.curve == tuple(sorted(seen.curve))
    assert len(seen.points) >= len(ends)
    assert all("epsilon" in p.measures for p in seen.points)


def test_proposals_follow_from_the_rows_and_a_raised_budget_goes_on(study, tmp_path):
    from dataclasses import replace
    with run(study, tmp_path / "whole.db") as store:
        whole = [(t.settings, t.measures) for t in store.trials()]
        assert list(verify(study, store)) == []
    run(replace(study, budget=3), tmp_path / "parts.db").close()
    with run(study, tmp_path / "parts.db") as store:
        assert str([(t.settings, t.measures) for t in store.trials()]) == str(whole)  # as text, since nan is not nan


def test_where_rounds_are_fixed_nothing_is_stored_on_the_way(tiny_study, tmp_path):
    study = load_study(tiny_study)
    assert study.problem.free is None
    with run(study, tmp_path / "a.db") as store:
        assert all(t.curves == {} for t in store.trials())


def test_where_rounds_are_one_of_a_few_a_run_tells_its_end_alone(tiny_study, tmp_path):
    text = tiny_study.read_text().replace("rounds = 1\n", "rounds = { choices = [1, 4] }\n")
    tiny_study.write_text(text.replace("budget = 2", "budget = 6"))
    study = load_study(tiny_study)
    assert study.problem.free is None
    with run(study, tmp_path / "a.db") as store:
        assert {t.settings["rounds"] for t in store.trials()} == {1, 4}
        assert all(t.curves == {} for t in store.trials())
        assert view(study, store.trials()).evaluations == 6


def test_known_measures_are_those_that_a_run_reports(study):
    settings = {"learning_rate": [0.1, 0.2], "rounds": [2, 5], "sigma": [0.1, 0.5], "clipping_norm": [1.0, 2.0]}
    measured = study.problem.measure(settings, [1, 1])
    assert set(study.problem.known(settings)) == {"kang23_eq13"}  # of the objectives
    exact = study.problem.known(settings, ["kang23_eq13", "gu24_eq2", "xiao25_eq7", "epsilon", "epsilon_release", "test_error"])
    assert set(exact) == {"kang23_eq13", "gu24_eq2", "xiao25_eq7", "epsilon", "epsilon_release"}
    for name, column in exact.items():
        np.testing.assert_array_equal(column, measured[name], err_msg=name)


def test_a_database_of_the_first_version_can_be_read_and_continued(tiny_study, tmp_path):
    """Its rows have no curves."""
    study = load_study(tiny_study)
    path = tmp_path / "old.db"
    with run(study, path):
        pass
    with closing(sqlite3.connect(path)) as db, db:
        for table in ("trials", "repeats"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN curves")
        db.execute("ALTER TABLE sessions DROP COLUMN ended")
        db.execute("ALTER TABLE sessions DROP COLUMN work")
        db.execute("ALTER TABLE study DROP COLUMN secret")
        for table in ("study", "trials", "repeats", "sessions"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        for table in ("audits", "data", "baselines"):
            db.execute(f"DROP TABLE {table}")
        db.execute("PRAGMA user_version = 1")
    db.close()
    assert len(MIGRATIONS) == 7
    with Store.read(path) as store:
        assert [t.curves for t in store.trials()] == [{}, {}]
        json.dumps(store.identity)
    from dataclasses import replace
    with run(replace(study, budget=4), path) as store:
        assert [t.state for t in store.trials()] == ["done"] * 4
