"""Limits without an objective: read, kept by every optimizer, and shown wherever a study is."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedpareto import Objective, Random, Study, load_study, pick, run, verify, view
from fedpareto.errors import SettingError, StudyError
from fedpareto.federation import MEASURES
from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.optimizers import Bayesian, FedMoeac, Nsga2, Psl, QLogNehvi, spending
from fedpareto.optimizers.bayesian import design
from fedpareto.optimizers.improvement import boxes, expected_improvement
from fedpareto.optimizers.psl import lower_bounds, penalised_bounds
from fedpareto.optimizers.surrogate import fit, torch_alone
from fedpareto.problem import Limit, feasible, judges, limits, penalised, reference
from fedpareto.report.compare import compare
from fedpareto.report.evidence import evidence
from fedpareto.report.page import page_data
from fedpareto.report.text import front_csv, front_data, table
from fedpareto.study.write import fixed_study
from fedpareto.testing import check_problem, continuous, optimize
from fedpareto.trials import Trial
from tests.conftest import STUDY

EXAMPLE = Path(__file__).parents[1] / "examples" / "limits.toml"
SECONDS = '[limits.seconds]\nmeasure = "gu24_eq4"\nlimit = 0.05\n'


def written(folder, *more, text=STUDY):
    path = folder / "study.toml"
    path.write_text("\n".join([text, *more]))
    return path


def fault(folder, *more, text=STUDY):
    with pytest.raises(StudyError) as found:
        load_study(written(folder, *more, text=text))
    return str(found.value)


# Reading


def test_a_limit_takes_any_measure_and_is_no_objective(tmp_path):
    study = load_study(written(tmp_path, SECONDS, '[limits.loss]\nmeasure = "test_loss"\ncase = "worst"\nlimit = 2\npenalty = 5'))
    assert study.problem.limits == (Limit("seconds", 0.05, "gu24_eq4"), Limit("loss", 2.0, "test_loss_worst", 5.0))
    assert [o.name for o in study.problem.objectives] == ["utility_loss", "leakage"]
    assert reference(study.problem.objectives).shape == (2,)


OTHER_PARTS = {"private_fraction", "epsilon_record", "epsilon_client"}  # that the study here has not


@pytest.mark.parametrize("name", [name for name, m in MEASURES.items() if not OTHER_PARTS & {*m.needs}])
def test_every_measure_may_be_limited(tmp_path, name):
    text = STUDY.replace('measure = "test_error"', 'measure = "test_loss_worst"\nreference = 9')
    text = text.replace('measure = "kang23_eq13"\nlimit = 0.8', 'measure = "download_bytes"\nreference = 9e9')
    if name in ("test_loss_worst", "download_bytes"):
        assert f"must be of a measure that is no objective, found {name}. Write limit = 1 in" in fault(
            tmp_path, f"[limits.it]\nmeasure = '{name}'\nlimit = 1", text=text)
        return
    problem = load_study(written(tmp_path, f"[limits.it]\nmeasure = '{name}'\nlimit = 1", text=text)).problem
    values = problem.space.decode(np.full((1, len(problem.space)), 0.5))
    assert math.isfinite(problem.measure(values, [0])[name][0])


FAULTS = {
    "[limits.seconds]\nmeasure = 'gu24_eq4'": "limits.seconds.limit: must be given: what the measure must not exceed",
    "[limits.seconds]\nlimit = 3": "limits.seconds: there is no measure 'seconds'.",
    "[limits.size_ratio]\nlimit = nan": "limits.size_ratio.limit: must be a finite number, found nan",
    "[limits.size_ratio]\nlimit = 1\npenalty = -1": "limits.size_ratio.penalty: must be at least 0, found -1",
    "[limits.size_ratio]\nlimit = 1\nreference = 1": "limits.size_ratio.reference: there is no such key.",
    "[limits]\nsize_ratio = 3": "limits.size_ratio: must be a table such as {limit = 0.8}, found 3.",
    "[limits.size_ratio]\nlimit = 1\ncase = 'worst'": "limits.size_ratio.case: must be average for size_ratio, found worst",
    "[limits.kang23_eq15]\nlimit = 1": "limits.kang23_eq15: needs a mechanism with private_fraction, found Randomization.",
    "[limits.test_error]\nlimit = 0.5": "limits.test_error: must be of a measure that is no objective, found test_error. "
                                        "Write limit = 0.5 in [objectives.utility_loss].",
    "[limits.leakage]\nmeasure = 'size_ratio'\nlimit = 1": "limits.leakage: must have a name of its own, found that of an objective.",
    "[privacy]\ntarget_epsilon = 3": "must go with an objective or a limit that measures ε, found none. Add [objectives.epsilon] or "
                                     "[limits.epsilon].",
    "[limits.utility_lost]\nlimit = 1\n[privacy]\nprivate_data = true": "limits.utility_lost: must be of the models, or follow from",
}


@pytest.mark.parametrize("more", FAULTS)
def test_a_limit_that_cannot_be_is_refused(tmp_path, more):
    assert FAULTS[more] in fault(tmp_path, more)


def test_the_target_epsilon_is_the_limit_of_what_measures_epsilon(tmp_path):
    path = written(tmp_path, "[limits.epsilon]\npenalty = 3\n[privacy]\ntarget_epsilon = 7")
    text = path.read_text()
    with pytest.raises(StudyError, match=r"limits\.epsilon\.limit: must be given"):
        load_study(written(tmp_path, "[limits.epsilon]\npenalty = 3"))
    path.write_text(text)
    assert load_study(path).problem.limits == (Limit("epsilon", 7.0, penalty=3.0),)


def test_studies_without_limits_are_what_they_were_and_others_are_others(tmp_path):
    plain = load_study(written(tmp_path))
    assert "limits" not in plain.identity
    assert "limits" not in plain.description
    limited = load_study(written(tmp_path, SECONDS))
    assert limited.identity["limits"] == [{"name": "seconds", "measure": "gu24_eq4", "limit": 0.05, "penalty": 20.0}]
    built = Study("built", plain.problem, plain.optimizer, 2)
    assert "limits" not in built.identity["problem"]
    assert "limits" in Study("built", limited.problem, plain.optimizer, 2).identity["problem"]


@pytest.mark.parametrize(("key", "value", "said"), [
    ("limit", math.inf, "limit seconds: limit must be a finite number, found inf."),
    ("penalty", math.nan, "limit seconds: penalty must be a finite number, found nan."),
    ("penalty", -1.0, "limit seconds: penalty must be at least 0, found -1.0."),
])
def test_a_limit_made_in_python_is_checked(key, value, said):
    with pytest.raises(SettingError) as found:
        Limit("seconds", **{"limit": 1.0, key: value})
    assert str(found.value) == said


# What optimizers make of them


def bowl(limit: float | None, m: int = 2):
    """Return a problem whose front lies at small f1 + f2; what is limited grows towards it."""
    def function(x):
        y = np.stack([x[:, 0] + x[:, 1], 1 - x[:, 0] + x[:, 1]], axis=1)[:, :m]
        return np.hstack([y, 1 - x[:, 1:2]])
    made = continuous(lambda x: function(x)[:, : m if limit is None else m + 1], 2, m, reference=2.0)
    return made if limit is None else replace(made, limits=(Limit("dear", limit),))


def test_the_penalty_of_a_limit_counts_in_every_objective_in_units_of_its_reference():
    asked = (Objective("a", limit=1.0, reference=2.0), Objective("b", reference=10.0), Limit("c", 4.0, penalty=3.0), Limit("d", 0.0, penalty=1.0))
    y = np.array([[0.5, 5.0, 4.0, 0.0], [1.5, 5.0, 6.0, 0.0], [0.5, 5.0, 3.0, 2.0]])
    beyond = [0.0, 3 * 2 / 4, 2.0]  # α times the share by which it is exceeded; of a limit of 0, the excess itself
    expected = [[a + 2 * e, 5.0 + 10 * e] for a, e in zip([0.5, 1.5 + 20 * 0.5, 0.5], beyond, strict=True)]
    assert penalised(asked, y) == pytest.approx(np.array(expected))
    assert feasible(asked, y).tolist() == [True, False, False]
    assert np.array_equal(penalised(asked[:2], y[:, :2]), y[:, :2] + np.array([[0, 0], [10, 0], [0, 0]]))


OPTIMIZERS = {
    "nsga2": Nsga2(population=10),
    "domination": Nsga2(population=10, constraint="domination"),
    "fedmoeac": FedMoeac(population=10),
    "psl": Psl(steps=200),
    "bayesian": Bayesian(candidates=200),
    "qlognehvi": QLogNehvi(batch=3, start=6, samples=8, steps=10, restarts=1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_keeps_a_limit_that_is_no_objective(name):
    budget = 60 if name in ("nsga2", "domination", "fedmoeac") else 15
    held = {}
    for limit in (None, 0.6):
        history = optimize(bowl(limit), OPTIMIZERS[name], budget, seed=1)
        limited = 1 - history.x[budget // 2 :, 1]
        held[limit] = float((limited <= 0.6).mean())
    assert held[0.6] > held[None] + 0.2


@pytest.mark.parametrize("name", ["bayesian", "qlognehvi"])
def test_a_limit_goes_with_one_objective_too(name):
    history = optimize(bowl(0.6, m=1), OPTIMIZERS[name], 12, seed=1)
    assert feasible(judges(bowl(0.6, m=1)), history.judged)[6:].mean() >= 0.5


@dataclass(frozen=True)
class Told:
    """Both objectives are measured; what is limited is known."""

    block: int = 1000
    limits: tuple[Limit, ...] = (Limit("dear", 0.6),)

    failures = {}  # noqa: RUF012
    space = bowl(None).space
    objectives = bowl(None).objectives

    def known(self, values, names=None):
        dear = 1 - np.asarray(values["x2"], dtype=float)
        return {"dear": dear} if names is None or "dear" in names else {}

    def measure(self, values, seeds):
        return bowl(0.6).measure(values, seeds)


def test_a_known_limit_holds_before_anything_is_trained():
    check_problem(Told())
    first = Told().known(Told.space.decode(design(Told(), 5, seed=0)))["dear"]
    assert (first <= 0.6).all()
    history = optimize(Told(), Bayesian(candidates=200), 10, seed=0)
    assert feasible(judges(Told()), history.judged).all()
    assert history.limited.max() > 0.55  # and the search goes to the limit, where the front is


@dataclass(frozen=True)
class SaysTooLittle(Told):
    def measure(self, values, seeds):
        return {name: column for name, column in bowl(0.6).measure(values, seeds).items() if name != "dear"}


@dataclass(frozen=True)
class NamedTwice(Told):
    limits: tuple[Limit, ...] = (Limit("f1", 0.6, "dear"),)


@pytest.mark.parametrize(("problem", "said"), [(SaysTooLittle(), "dear: measure 'dear' must be among"),
                                               (NamedTwice(), "limits: must have names that differ")])
def test_a_problem_must_measure_what_it_limits(problem, said):
    with pytest.raises(AssertionError, match=said):
        check_problem(problem)


def test_expected_improvement_counts_the_chance_that_a_limit_holds():
    draw = np.random.default_rng(3)
    front, corner = draw.random((8, 2)), np.ones(2)
    mean, sd = np.array([[0.3, 0.4, 0.5]]), np.array([[0.1, 0.05, 0.2]])
    bounds = np.array([np.inf, np.inf, 0.6])
    y = mean + sd * draw.normal(size=(20_000, 3))
    base = hypervolume(front, corner)
    gains = [hypervolume(np.vstack([front, row[:2]]), corner) - base if row[2] <= 0.6 else 0.0 for row in y]
    found = expected_improvement(mean, sd, bounds, *boxes(front, corner))[0]
    assert found == pytest.approx(np.mean(gains), abs=4 * np.std(gains) / np.sqrt(len(gains)))
    without = expected_improvement(mean[:, :2], sd[:, :2], bounds[:2], *boxes(front, corner))[0]
    assert found == pytest.approx(without * 0.6914624612740131)  # the normal distribution at (0.6 − 0.5) / 0.2


def test_a_trial_is_trained_again_while_noise_may_hide_that_it_holds_a_limit():
    problem = bowl(0.6)
    zeros = np.zeros(2, dtype=np.int64)
    history = History(np.full((2, 2), 0.5), np.array([[0.9, 0.9], [0.8, 1.0]]), zeros, runs=np.array([3, 3]),
                      spread=np.full((2, 3), 0.1), limited=np.array([[0.5], [0.5]]))
    tried = History(np.full((3, 2), 0.5), np.full((3, 2), 0.1), np.zeros(3, dtype=np.int64), limited=np.array([[0.5], [0.75], [0.85]]))
    assert spending.worth_repeating(problem, history, tried).tolist() == [True, True, False]
    assert spending.front_of(problem, replace(history, limited=np.array([[0.5], [0.7]]))).tolist() == [[0.9, 0.9]]


def test_pareto_set_learning_aims_at_objectives_with_their_penalties():
    """The bounds are those that `penalised` gives, in standardised units, and their slopes are the slopes."""
    problem = bowl(0.6)
    history = optimize(problem, Random(batch=12), 12, seed=0)
    with torch_alone(0):
        learned = [fit(problem.space, history.x, column) for column in history.judged.T]
    centre, scale = np.array([(s.centre, s.scale) for s in learned]).T
    plain = lower_bounds(learned, 0.1)
    grown = penalised_bounds(plain, problem, learned)
    x = np.random.default_rng(1).random((20, 2))
    value, slope = grown(x)
    expected = penalised(judges(problem), centre + scale * plain(x)[0])
    assert centre[:2] + scale[:2] * value == pytest.approx(expected)
    assert (value > plain(x)[0][:, :2] + 1).any()
    for j in range(2):
        step = np.eye(2)[j] * 1e-5
        assert slope[:, :, j] == pytest.approx((grown(x + step)[0] - grown(x - step)[0]) / 2e-5, rel=0.01, abs=0.02)


# History


def test_a_history_keeps_limited_measures_through_batches():
    history = optimize(bowl(0.6), Random(batch=4), 12, seed=0)
    assert history.limited.shape == (12, 1)
    assert np.array_equal(history.judged, np.hstack([history.y, history.limited]))
    assert np.array_equal(history.before(2).limited, history.limited[:8])
    lost = replace(history, limited=np.where(np.arange(12)[:, None] == 3, np.nan, history.limited))
    assert np.flatnonzero(lost.failed).tolist() == [3]


def test_limited_measures_of_another_shape_are_refused():
    rows = (np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2, dtype=np.int64))
    for limited in (np.zeros((3, 1)), np.zeros(2)):
        with pytest.raises(SettingError, match=r"history: limited \[n,c\] and free_limited \[e,c\] must agree, found"):
            History(*rows, limited=limited)


# A whole study


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The example, small, run to its end: its study, its view and its trials."""
    folder = tmp_path_factory.mktemp("limits")
    text = EXAMPLE.read_text().replace("budget = 60", "budget = 8").replace("repeats = 3", "repeats = 1")
    text = text.replace("clients = 300", "clients = 40").replace("[5, 60]", "[5, 30]").replace("limit = 8.0", "limit = 5.0", 1)
    text = text.replace("limit = 8.0", "limit = 60.0") + '\n[optimizer]\nname = "random"\nbatch = 8\n'
    path = folder / "study.toml"
    path.write_text(text)
    study = load_study(path)
    with run(study) as store:
        assert list(verify(study, store)) == []
        trials = store.trials()
    return study, view(study, trials), trials


def test_only_what_holds_every_limit_is_on_the_front_and_limits_are_no_dimension(finished):
    study, seen, _ = finished
    held = [all(p.limited[o.name] <= o.limit for o in study.problem.limits) for p in seen.points]
    assert [p.feasible for p in seen.points] == held
    assert True in held
    assert False in held
    assert all(p.feasible for p in seen.front)
    y = np.array([[*p.objectives.values()] for p in seen.points if p.feasible])
    assert y.shape[1] == 2
    assert seen.hypervolume == pytest.approx(hypervolume(y, reference(study.problem.objectives)))


def test_a_run_tells_the_limited_measures_of_shorter_runs_too(finished):
    study, seen, trials = finished
    early = [p for p in seen.points if p.settings["rounds"] < trials[p.trial].settings["rounds"]]
    assert early
    values = {name: [p.settings[name] for p in early] for name in study.problem.space.names}
    known = study.problem.known(values)
    for limit in study.problem.limits:
        assert [p.limited[limit.name] for p in early] == pytest.approx(known[limit.measure].tolist())


def test_pick_keeps_a_tighter_limit_and_finds_runs_that_others_beat(finished):
    _, seen, _ = finished
    tight = sorted(p.limited["seconds"] for p in seen.points if p.feasible)[0]
    chosen, why = pick(seen, {"seconds": tight}, "utility_loss")
    assert chosen.limited["seconds"] == tight
    assert why == f"The least utility_loss under seconds ≤ {tight:g}."
    with pytest.raises(SettingError, match=r"The least of each by itself.*: utility_loss .*, sent .*, seconds .*, epsilon"):
        pick(seen, {"epsilon": 1e-9})
    with pytest.raises(SettingError, match=r"second: must be an objective or a limit of the study. Did you mean 'seconds'"):
        pick(seen, {"second": 1.0})
    with pytest.raises(SettingError, match=r"seconds: must be an objective of the study\."):
        pick(seen, {}, "seconds")


def test_limits_are_shown_with_their_values_everywhere(finished):
    study, seen, trials = finished
    assert [c.header.plain for c in table(seen).columns][2:6] == ["utility_loss", "sent", "seconds ≤ 5", "epsilon ≤ 60"]
    head, first, *_ = front_csv(seen).splitlines()
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert float(row["seconds"]) == seen.front[0].limited["seconds"]
    data = json.loads(json.dumps(front_data(seen)))
    assert data["limits"] == {"seconds": 5.0, "epsilon": 60.0}
    assert data["points"][0]["limits"] == seen.front[0].limited
    page = evidence(seen, trials)
    assert "limited alone" in page
    assert "seconds ≤ 5" in page
    shown = page_data(seen)
    assert [one["heading"] for one in shown["limits"]] == ["seconds ≤ 5", "epsilon ≤ 60"]
    assert all(one["measure"] in shown["points"]["measures"] for one in shown["limits"])
    kept = tomllib.loads(fixed_study(study, seen.front[0].settings))
    assert kept["limits"]["seconds"] == {"measure": "gu24_eq4", "limit": 5.0, "penalty": 20.0}


def test_a_comparison_counts_what_holds_limits_alone(finished):
    study, seen, _ = finished
    found = compare([study.path])
    assert found.groups[0].curves[0].tolist() == pytest.approx(list(seen.curve))
    assert found.groups[0].y.shape[1] == 2


def test_a_row_whose_limited_measure_is_missing_has_failed():
    problem = bowl(0.6)
    study = Study("looked at", problem, Random(), budget=2)
    measured = {"f1": 0.5, "f2": 0.5}
    trials = [Trial(i, 0, (0.5, 0.5), {"x1": 0.5, "x2": 0.5}, "done", measured | more) for i, more in enumerate(({"dear": 0.5}, {}))]
    seen = view(study, trials)
    assert [p.feasible for p in seen.points] == [True, False]


def test_the_limits_of_the_example_bind_before_a_training():
    problem = load_study(EXAMPLE).problem
    y = problem.known(problem.space.decode(Random().propose(problem, History.empty(4, 2, 2), 64, 0)))
    bound = dict(zip([o.measure for o in judges(problem)], limits(judges(problem)), strict=True))
    for name in ("gu24_eq4", "epsilon"):
        assert 0.1 < (y[name] <= bound[name]).mean() < 0.9
