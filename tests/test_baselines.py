"""What trials are held against, what looking at a study needs of its data, and what is never recommended."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from fedpareto import load_study, pick, run, view
from fedpareto.errors import DamagedStore, DataError
from fedpareto.executors import here
from fedpareto.federation import data as data_sets
from fedpareto.noise import derive
from fedpareto.report.against import NEVER, against
from fedpareto.report.choose import Baselines, Held, aim_of, best, recommend
from fedpareto.store import Store
from fedpareto.trials import Result


@pytest.fixture
def study(tiny_study):
    return load_study(tiny_study, budget=4)


def kept(study, db):
    with Store.read(db) as store:
        return {name: store.baselines(name) for name in ("trivial", "unprotected")}


def test_the_trivial_model_always_gives_the_most_frequent_class(study):
    labels = data_sets.load(study.problem.data).y_test
    counts = np.bincount(labels) / len(labels)
    (found,) = study.problem.trivial([derive(1, "repeat", 0)])
    assert found["test_error"] == pytest.approx(1 - counts.max())
    assert found["test_loss"] == pytest.approx(-np.sum(counts * np.log(counts)), rel=1e-5)
    split = study.problem.split_table(derive(1, "repeat", 0))
    assert found["test_error_worst"] >= found["test_error"]
    assert split.shape == (4, 10)


def test_where_numbers_are_predicted_the_trivial_model_always_gives_their_mean(study, tmp_path):
    random = np.random.default_rng(0)
    parts = {f"x_{p}": random.random((40, 3), dtype=np.float32) for p in ("train", "test")}
    parts |= {f"y_{p}": random.random(40).astype(np.float32) for p in ("train", "test")}
    np.savez(tmp_path / "numbers.npz", **parts)
    problem = study.problem
    problem = replace(problem, data=replace(problem.data, name=str(tmp_path / "numbers.npz")),
                      training=replace(problem.training, loss="mse"))
    assert problem.trivial([0])[0]["test_loss"] == pytest.approx(parts["y_test"].var(), rel=1e-5)


def test_the_unprotected_baseline_is_a_training_of_the_same_federation_and_no_trial(study, tmp_path):
    with run(study, db=tmp_path / "a.db") as store:
        trials = store.trials("done")
        assert (len(store), store.trainings()) == (4, 4)
    best = min(trials, key=lambda t: t.measures["test_error"])
    (found,) = kept(study, tmp_path / "a.db")["unprotected"]
    assert found.settings == {"learning_rate": best.settings["learning_rate"]}
    _, measures = study.problem.unprotected().train(found.settings, derive(1, "repeat", 0))
    assert found.measures["test_error"] == measures["test_error"]
    assert found.measures["test_error"] < best.measures["test_error"]


def test_a_raised_budget_ends_with_the_baselines_of_a_study_left_alone(study, tmp_path):
    run(study, db=tmp_path / "alone.db").close()
    run(replace(study, budget=2), db=tmp_path / "raised.db").close()
    run(study, db=tmp_path / "raised.db").close()
    assert kept(study, tmp_path / "alone.db") == kept(study, tmp_path / "raised.db")


def test_a_finished_study_trains_nothing_again(study, tmp_path):
    run(study, db=tmp_path / "a.db").close()

    def never(problem, trials, seed):
        raise AssertionError("nothing is left to train")

    run(study, db=tmp_path / "a.db", evaluate=never).close()


def test_a_baseline_that_fails_says_why(study, tmp_path):
    def fails(problem, trials, seed):
        unprotected = not hasattr(problem.mechanism, "sigma")
        for results in here(problem, trials, seed):
            yield [Result(r.trial, r.repeat, {}, "diverged") if unprotected else r for r in results]

    with run(study, db=tmp_path / "a.db", evaluate=fails) as store:
        assert "without protection failed with learning_rate" in against(view(study, store))[1]


def test_on_private_data_nothing_is_trained_unprotected_and_that_is_said(study_text, tmp_path):
    path = tmp_path / "private.toml"
    path.write_text(study_text.replace("[optimizer]", '[privacy]\nprivate_data = true\n\n[optimizer]'))
    study = load_study(path)
    with run(study) as store:
        assert store.baselines("unprotected") == []
        assert store.facts["split"] == []
        assert against(view(study, store)) == ["Always giving the same answer has test_error 0.8552.", NEVER]


@pytest.fixture
def no_data(monkeypatch):
    """No data set can be read."""
    def missing(data):
        raise DataError("no data here")

    monkeypatch.setattr(data_sets, "_arrays", missing)
    data_sets._loaded.cache_clear()
    yield
    data_sets._loaded.cache_clear()


VERBS = [("front",), ("front", "--json"), ("pick",), ("verify",), ("report",), ("report", "--evidence"), ("compare",)]


def answers(study, fedpareto):
    said = [fedpareto(verb, study, *options) for verb, *options in VERBS]
    pages = [study.with_suffix(".html"), study.with_name("tiny-evidence.html")]
    return said, [p.read_bytes() for p in pages]


@pytest.mark.parametrize("rounds", ["rounds = 1", "rounds = [1, 3]"])
def test_reading_verbs_say_the_same_without_the_data(tiny_study, study_text, rounds, fedpareto, request):
    tiny_study.write_text(study_text.replace("rounds = 1", rounds).replace("limit = 0.8", "limit = 1.0"))
    run(load_study(tiny_study)).close()
    before = answers(tiny_study, fedpareto)
    request.getfixturevalue("no_data")
    assert answers(tiny_study, fedpareto) == before
    assert {done.status for done in before[0]} == {0}
    assert "no data here" in fedpareto("train", tiny_study, "--trial", "0").err


def test_an_older_database_is_read_without_the_data_as_far_as_it_goes(finished_study, fedpareto, no_data):
    with closing(sqlite3.connect(finished_study.with_suffix(".db"))) as db:
        db.executescript("UPDATE sessions SET checksum = NULL; ALTER TABLE sessions DROP COLUMN work;"
                         "DROP TABLE data; DROP TABLE baselines; PRAGMA user_version = 5;")
    for verb in ("front", "report", "compare"):
        done = fedpareto(verb, finished_study)
        assert done.status == 0, done.err


@pytest.mark.parametrize(("table", "column"), [("data", "facts"), ("baselines", "measures")])
def test_damage_of_what_is_kept_beside_trials_is_named(finished_study, table, column):
    with closing(sqlite3.connect(finished_study.with_suffix(".db"))) as db, db:
        db.execute(f"UPDATE {table} SET {column} = '{{}}'")
    with pytest.raises(DamagedStore, match=f"table {table}, row 1, column checksum: must be that of the row"):
        Store.read(finished_study.with_suffix(".db"))


def test_rescue_keeps_what_is_beside_trials(finished_study, fedpareto, tmp_path):
    saved = tmp_path / "saved.db"
    assert fedpareto("rescue", finished_study, "--output", saved).status == 0
    with Store.read(saved) as new, Store.read(finished_study.with_suffix(".db")) as old:
        assert new.facts == old.facts
        assert [new.baselines(n) for n in ("trivial", "unprotected")] == [old.baselines(n) for n in ("trivial", "unprotected")]


def made(study, rows, trivial=math.nan):
    """Return a view of made-up trials (error, leakage), held against a constant answer."""
    from fedpareto.trials import Trial

    trials = [Trial(i, 0, (0.5,) * 3, {"learning_rate": 0.1, "sigma": 0.1, "clipping_norm": 1.0}, "done",
                    {"test_error": e, "kang23_eq13": leak}) for i, (e, leak) in enumerate(rows)]
    return view(study, trials, Baselines(Held({"test_error": trivial})))


def test_within_a_limit_the_least_loss_is_recommended_and_the_knee_stands_beside_it(study):
    seen = made(study, [(0.1, 0.75), (0.2, 0.1), (0.3, 0.05), (0.05, 0.9)])
    assert (seen.recommended.trial, seen.knee.trial) == (0, 1)
    assert seen.why.startswith("The least utility_loss within leakage ≤ 0.8. Beside it stands the knee, nearest to the best")
    assert "From here to trial 1: 0.65 less leakage for 0.1 more utility_loss." in seen.why
    assert pick(seen, {"leakage": 0.08})[0].trial == 2
    assert pick(seen, {}, "knee")[0].trial == 1
    assert pick(seen, {}, "leakage")[0].trial == 2


def test_without_a_limit_on_anything_but_the_loss_the_knee_is_recommended(study):
    goals = tuple(replace(o, limit=0.5 if o.name == "utility_loss" else None) for o in study.problem.objectives)
    free = replace(study, problem=replace(study.problem, objectives=goals))
    assert made(free, [(0.1, 0.75), (0.2, 0.1), (0.3, 0.05)]).recommended.trial == 1


def test_a_point_that_a_constant_answer_beats_is_never_recommended(study):
    seen = made(study, [(0.27, 0.4), (0.134, 0.7)], trivial=0.137)
    assert (seen.recommended.trial, len(seen.front)) == (1, 2)
    seen = made(study, [(0.27, 0.4), (0.14, 0.7)], trivial=0.137)
    assert (seen.recommended, seen.knee) == (None, None)
    assert "Always giving the same answer has test_error 0.137, and the best has 0.14: such a model is of no use." in seen.why
    assert pick(seen, {})[1].endswith("this point has 0.14: such a model is of no use.")


def test_what_luck_may_give_is_no_lead_over_a_constant_answer(study):
    """A past finding: the best of twenty models of pure noise was starred, by a fifteenth of one spread."""
    asked, rows = replace(study, repeats=2), [(0.85, 0.1), (0.87, 0.05), (0.83, 0.2)]

    def seen(spread):
        points = [replace(p, runs=2, spread={"test_error": spread}) for p in made(asked, rows).points]
        aim = aim_of(asked.problem, Baselines(Held({"test_error": 0.8552})), points)
        return recommend(best(points, asked.problem.objectives), aim)

    assert seen(0.02).point is None
    assert "the best has 0.83, which luck may give: trainings of the same settings differ by 0.02." in seen(0.02).why
    assert seen(0.015).point.trial == 2
    assert seen(0.0).point.trial == 2


def test_a_front_without_a_star_says_why(tiny_study, fedpareto):
    tiny_study.write_text(tiny_study.read_text().replace("sigma = ", "sigma = 1000.0  # ").replace("budget = 6", "budget = 2"))
    run(load_study(tiny_study)).close()
    out = fedpareto("front", tiny_study).out
    assert "★" not in out
    assert out.endswith("widen the ranges of noise and learning rate.\n")


def test_advice_names_a_limit_that_binds_and_no_other(study):
    assert "Loosen the limit on leakage, take more clients" in made(study, [(0.9, 0.7)], trivial=0.5).why
    assert "Take more clients or rounds" in made(study, [(0.9, 0.0)], trivial=0.5).why


def test_trials_alone_are_said_to_be_held_against_nothing(study, tmp_path):
    goals = tuple(replace(o, limit=None) for o in study.problem.objectives)
    study = replace(study, problem=replace(study.problem, objectives=goals))
    with run(study, db=tmp_path / "a.db") as store:
        alone, whole = view(study, store.trials()), view(study, store)
    assert alone.why.endswith("view(study, store) is.")
    assert alone.baselines.trivial is None
    assert "Trials alone" not in whole.why
    assert whole.baselines.trivial.measures["test_error"] > 0.8


def test_a_study_without_limits_is_picked_from_without_words_of_limits(study):
    goals = tuple(replace(o, limit=None) for o in study.problem.objectives)
    free = made(replace(study, problem=replace(study.problem, objectives=goals)), [(0.1, 0.75), (0.2, 0.1)])
    assert pick(free, {}, "leakage")[1] == "The least leakage."
    assert "limits" not in pick(free, {})[1]
    assert pick(made(study, [(0.1, 0.75), (0.2, 0.1)]), {}, "leakage")[1] == "The least leakage under the study's own limits."


def test_of_utility_lost_the_test_error_is_compared(study):
    goals = (replace(study.problem.objectives[0], measure="utility_lost"), study.problem.objectives[1])
    problem = replace(study.problem, objectives=goals)
    aim = aim_of(problem, Baselines(Held({"test_error": 0.5})))
    assert (aim.loss, aim.measure) == ("utility_loss", "test_error")
    points = made(study, [(0.4, 0.1), (0.6, 0.2)]).points
    assert [aim.useful(p) for p in points] == [True, False]
    assert recommend(points[1:], aim).point is None


def test_the_page_recommends_what_python_does(study, tmp_path):
    from fedpareto.report.page import page_data

    data = page_data(made(study, [(0.1, 0.75), (0.2, 0.1), (0.9, 0.01)], trivial=0.85))
    assert data["points"]["useful"] == [1, 1, 0]
    assert (data["recommended"], data["knee"]) == (0, 1)
    assert data["baselines"]["trivial"]["value"] == 0.85
    assert data["against"] == ["Always giving the same answer has test_error 0.85."]
    assert json.dumps(data["baselines"])


RECORDS = ('[local]\nname = "dp_sgd"\nrecord_noise_multiplier = 2.0\nrecord_clipping_norm = 1.0\n\n'
           '[privacy]\nunit = "record"\n\n[mechanism]\nname = "none"\n')


def test_where_local_steps_hide_records_the_unprotected_baseline_has_plain_steps_and_reading_needs_no_data(
        tiny_study, study_text, fedpareto, request):
    head, _, rest = study_text.partition("[mechanism]")
    text = head + RECORDS + "\n[objectives" + rest.partition("[objectives")[2]
    tiny_study.write_text(text.replace('measure = "kang23_eq13"\nlimit = 0.8', 'measure = "epsilon"\nreference = 1000.0'))
    study = load_study(tiny_study)
    assert type(study.problem.unprotected().local).__name__ == "Sgd"
    with run(study) as store:
        assert sum(store.facts["sizes"]) == store.facts["images"]
    before = fedpareto("front", tiny_study)
    request.getfixturevalue("no_data")
    assert fedpareto("front", tiny_study) == before
    assert (before.status, "record level" in before.out) == (0, True)


def test_the_evidence_prints_the_command_that_writes_it_again(tiny_study, study_text, fedpareto, monkeypatch):
    import html
    import re
    import shlex

    tiny_study.write_text(study_text.replace("limit = 0.8", "limit = 1.0"))
    run(load_study(tiny_study)).close()
    words = ["--evidence", "--limit", "leakage=0.999", "--prefer", "leakage"]
    assert fedpareto("report", tiny_study, *words).status == 0
    page = tiny_study.with_name("tiny-evidence.html")
    first = page.read_text()
    (line,) = [x for x in html.unescape(re.sub("<[^>]+>", "", first)).splitlines() if "report tiny.toml --evidence" in x]
    page.unlink()
    monkeypatch.chdir(tiny_study.parent)
    assert fedpareto(*shlex.split(line)[1:]).status == 0
    assert page.read_text() == first
    assert "Always giving the same answer has test_error 0.8552." in first
    assert "Signature" in first
