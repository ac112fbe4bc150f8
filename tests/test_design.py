"""Low-cost design as a user runs it: a small experiment, k, the noise, the front, and what it cost."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from fedpareto import load_study, theory
from fedpareto.design import Asked, Pre, _losses, design_study
from fedpareto.reproduce import gu24_cost
from fedpareto.reproduce.experiment import Rows
from fedpareto.store import Store
from fedpareto.trials import Trial

STUDY = """\
seed = 1
budget = 2

[data]
name = "digits"
clients = 30

[model]
name = "lr"

[training]
rounds = [1, 50]
local_steps = 10
batch_size = 16
sample_ratio = 0.5
learning_rate = 0.05

[mechanism]
name = "randomization"
sigma = [0.05, 1.0]

[privacy]
view = "secagg"

[objectives.test_loss]
reference = 3
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "real.toml"
    path.write_text(STUDY + '\n[optimizer]\nname = "grid"\n')
    return path


WORDS = ["--share", 1.0, "--sigmas", 20, "--seeds", 2]


def test_design_prints_the_noise_the_front_and_the_cost_and_draws_the_figure(study, fedpareto):
    status, out, err = fedpareto("design", study, *WORDS)
    assert (status, re.fullmatch(r"real-pre: 20 trials × 2 repeats: about \d+ s of training\n", err) is not None) == (0, True)
    assert "k = " in out
    assert "Train 50 rounds with σ = " in out
    assert "proxies" in out
    assert "true ε" in out
    assert "trained 40 small federations, 2000 rounds" in out
    assert study.with_name("real-design.png").read_bytes().startswith(b"\x89PNG")


def test_design_as_json_agrees_with_the_theory_and_is_not_trained_twice(study, fedpareto):
    first = json.loads(fedpareto("design", study, *WORDS, "--json").out)
    again = json.loads(fedpareto("design", study, *WORDS, "--json").out)
    assert {"k", "k_interval", "sigma", "front", "trainings", "seconds"} <= set(first)
    assert again["k"] == first["k"]
    assert first["trainings"] == 40
    assert first["k_interval"][0] <= first["k"] <= first["k_interval"][1]
    assert first["sigma"] == pytest.approx(np.clip(float(theory.sigma_of(50, first["k"], 30, 0.5)), 0.05, 1.0))
    assert all(row["epsilon"] > 0 for row in first["front"])
    with Store.read(study.with_name("real-design.db")) as store:
        assert len(store) == 20


def test_epsilon_beside_the_front_is_that_of_the_real_federation(study, fedpareto):
    from fedpareto.privacy import epsilon
    found = json.loads(fedpareto("design", study, *WORDS, "--json").out)
    problem = load_study(study).problem
    for row in found["front"][:: max(1, len(found["front"]) // 5)]:
        true = epsilon(problem.privacy, noise=row["sigma"], clipping_norm=1.0, cohort=15, clients=30, rounds=row["rounds"],
                       sampling="fixed")
        assert row["epsilon"] == pytest.approx(float(true))


def test_a_time_limit_becomes_fewer_rounds(study, fedpareto):
    study.write_text(study.read_text() + "\n[cost]\nstep_seconds = 0.1\nparameter_seconds = 0\nupload_rate = 1e15\ndownload_rate = 1e15\n")
    found = json.loads(fedpareto("design", study, *WORDS, "--seconds", 20.5, "--json").out)
    assert found["rounds_max"] == 20


def test_compare_searches_the_real_federation_by_training(study, fedpareto):
    found = json.loads(fedpareto("design", study, *WORDS, "--compare", "--json").out)
    others = found["others"]
    assert list(others) == ["full grid", "training with budget", "training until convergence", "low-cost design"]
    assert others["full grid"]["trainings"] == 40
    assert others["training until convergence"]["rounds"] <= others["full grid"]["rounds"]
    assert all(o["points"] for o in others.values())
    whole = 2 * 20 * 50  # seeds, noises and rounds; a round of the real federation has 15 clients of 10 steps, of the small one 10
    assert (others["full grid"]["rounds"], others["full grid"]["client_steps"]) == (whole, whole * 15 * 10)
    ours = others["low-cost design"]
    assert (ours["trainings"], ours["rounds"]) == (40 + 2, whole + 2 * 50)  # the training that follows counts too
    assert ours["client_steps"] == whole * 10 * 10 + 2 * 50 * 15 * 10


def test_budget_and_convergence_of_the_searches_may_be_set(study, fedpareto):
    usual = json.loads(fedpareto("design", study, *WORDS, "--compare", "--json").out)["others"]
    words = ["--budget", 7.5, "--tolerance", 0.2, "--patience", 2]
    asked = fedpareto("design", study, *WORDS, "--compare", *words, "--json")
    others = json.loads(asked.out)["others"]
    assert others["training with budget"]["budget"] == 7.5
    assert all(p["leakage"] <= 7.5 for p in others["training with budget"]["points"])
    assert others["training until convergence"]["rounds"] < usual["training until convergence"]["rounds"]
    out = fedpareto("design", study, *WORDS, "--compare", *words).out
    assert "√(qT)/σ ≤ 7.5; converged: loss not down by 0.2 of itself for 2 rounds" in out
    assert "low-cost design" in out


def test_a_range_of_noise_on_a_log_scale_is_gridded_on_it(study, fedpareto):
    study.write_text(study.read_text().replace("[0.05, 1.0]", "{ low = 0.05, high = 1.0, log = true }"))
    assert fedpareto("design", study, *WORDS).status == 0
    with Store.read(study.with_name("real-design.db")) as store:
        noises = sorted(t.settings["sigma"] for t in store.trials())
    np.testing.assert_allclose(noises, np.geomspace(0.05, 1.0, 20), rtol=1e-9)


def test_choices_of_noise_are_tried_as_they_are(study, fedpareto):
    choices = [round(float(s), 4) for s in np.geomspace(0.05, 1.0, 12)]
    study.write_text(study.read_text().replace("[0.05, 1.0]", f"{{ choices = {choices} }}"))
    assert fedpareto("design", study, *WORDS).status == 0
    with Store.read(study.with_name("real-design.db")) as store:
        assert sorted(t.settings["sigma"] for t in store.trials()) == choices


def test_trainings_that_failed_count_too():
    failed = _losses(None, Trial(0, 0, (), {}, state="failed"), 2, 50)
    assert failed.shape == (2, 50)
    losses = np.stack([np.ones((2, 50)), failed])
    found = theory.full_grid(theory.Runs.of([0.1, 0.2], 1.0, losses, round_steps=3))
    assert (found.cost.trainings, found.cost.rounds, found.cost.client_steps) == (4, 200, 600)
    assert set(found.points["sigma"]) == {0.1}


def test_choices_of_the_sample_ratio_are_each_designed_for_and_searched(study, fedpareto):
    study.write_text(study.read_text().replace("sample_ratio = 0.5", "sample_ratio = { choices = [0.5, 0.2] }"))
    found = json.loads(fedpareto("design", study, *WORDS, "--compare", "--json").out)
    assert [r["sample_ratio"] for r in found["ratios"]] == [0.2, 0.5]
    for row in found["ratios"]:
        law = float(theory.sigma_of(50, found["k"], 30, row["sample_ratio"]))
        assert row["sigma"] == pytest.approx(np.clip(law, 0.05, 1.0))
    grid, ours = found["others"]["full grid"], found["others"]["low-cost design"]
    assert (grid["trainings"], grid["client_steps"]) == (80, 40 * 50 * (15 + 6) * 10)
    assert ours["trainings"] == 40 + 20 * 2  # Table III: a training for each noise, and none over q
    law = np.clip(found["k"] * np.linspace(0.05, 1.0, 20) ** 2 * 50 / 30, 0.2, 0.5)  # the q of each noise
    assert [p["sample_ratio"] for p in ours["points"]] == pytest.approx(law)
    assert [p["sigma"] for p in ours["points"]] == pytest.approx(np.linspace(0.05, 1.0, 20))
    follow = sum(round(q * 30) for q in law) * 10 * 50 * 2
    assert ours["client_steps"] == 40 * 50 * 10 * 10 + follow < 40 * 50 * 10 * 10 + 20 * 15 * 10 * 50 * 2
    assert {p["sample_ratio"] for p in grid["points"]} == {0.2, 0.5}
    assert "q = 0.2: 50 rounds with σ = " in fedpareto("design", study, *WORDS).out


@pytest.mark.parametrize("ratios", [[0.5], [0.2, 0.5]])
def test_what_a_design_costs_is_what_reproduce_counts_of_the_same_rows(study, ratios):
    choices = ratios[0] if len(ratios) == 1 else f"{{ choices = {ratios} }}"
    study.write_text(study.read_text().replace("sample_ratio = 0.5", f"sample_ratio = {choices}"))
    asked, db = load_study(study), study.with_suffix(".db")
    made = design_study(asked, Pre(share=1.0, sigmas=20, seeds=2), db, Asked(compare=True))

    def rows(tail: str, ratio: float, clients: int) -> Rows:
        problem = replace(asked.problem, data=replace(asked.problem.data, clients=clients))
        problem = replace(problem, training=replace(problem.training, sample_ratio=ratio))
        with Store.read(db.with_name(f"real{tail}.db")) as store:
            trials = store.trials()
            losses = {t.number: _losses(store, t, 2, 50).tolist() for t in trials}
        return Rows(replace(asked, problem=problem), trials, losses, 1.0)

    tails = ["-grid"] if len(ratios) == 1 else [f"-grid-{q:g}" for q in ratios]
    real = [rows(tail, q, 30) for tail, q in zip(tails, ratios, strict=True)]
    counted = gu24_cost.designed([rows("", 1.0, Pre().clients)], real)
    assert counted == made.others["low-cost design"]["client_steps"]
    found = gu24_cost.searched(real)
    for way, (spent, loss) in found.items():
        other = made.others[way]
        assert (spent, loss) == (other["client_steps"], min(p["loss"] for p in other["points"]))


def test_choices_of_noise_are_as_many_trainings_of_the_design(study, fedpareto):
    choices = [round(float(s), 4) for s in np.geomspace(0.05, 1.0, 12)]
    text = study.read_text().replace("[0.05, 1.0]", f"{{ choices = {choices} }}")
    study.write_text(text.replace("sample_ratio = 0.5", "sample_ratio = { choices = [0.5, 0.2] }"))
    ours = json.loads(fedpareto("design", study, *WORDS, "--compare", "--json").out)["others"]["low-cost design"]
    assert ours["trainings"] == 2 * 12 + 2 * 12  # of the small experiment, and of what follows
    assert [p["sigma"] for p in ours["points"]] == choices


def test_a_budget_that_nothing_keeps_is_said(study, fedpareto):
    out = fedpareto("design", study, *WORDS, "--compare", "--budget", 0.001).out
    assert "√(qT)/σ ≤ 0.001, which nothing tried keeps; converged" in out


@pytest.mark.parametrize("option", ["--budget", "--tolerance", "--patience"])
def test_terms_of_the_searches_need_the_searches(study, fedpareto, option):
    status, _, err = fedpareto("design", study, *WORDS, option, 1)
    assert status == 2
    assert f"{option}: must go with --compare, found no --compare" in err


def test_the_share_of_clients_follows_from_noise_and_rounds(study, fedpareto):
    study.write_text(study.read_text().replace("sample_ratio = 0.5", "sample_ratio = [0.1, 1.0]"))
    k = json.loads(fedpareto("design", study, *WORDS, "--sigma", 0.4, "--rounds", 20, "--json").out)
    assert k["sample_ratio"] == pytest.approx(k["k"] * 0.4**2 * 20 / 30)
    assert (k["sigma"], k["rounds"]) == (0.4, 20)
    assert "of the clients in each" in k["message"]


@pytest.mark.parametrize(("old", "new", "says"), [
    ('name = "randomization"\nsigma = [0.05, 1.0]', 'name = "none"', "needs a study of a federation with the mechanism randomization"),
    ("sigma = [0.05, 1.0]", "sigma = 0.5", "mechanism.sigma must be a range to design within, found 0.5"),
    ("sigma = [0.05, 1.0]", "sigma = [0.0, 1.0]", "mechanism.sigma must start above 0, found 0"),
    ("learning_rate = 0.05", "learning_rate = [0.05, 0.5]", "learning_rate must be fixed, found that it is searched: k holds for one"),
    ("batch_size = 16", "batch_size = [8, 16]", "batch_size must be fixed, found that it is searched"),
    ("[privacy]", "[privacy]\nprivate_data = true", "privacy.private_data must be false, found true"),
    ("sample_ratio = 0.5", "sample_ratio = [0.2, 0.5]", "training.sample_ratio must be one number or choices, found the range [0.2, 0.5]"),
    ("sample_ratio = 0.5", "sample_ratio = [0.2, 0.5] # --sigma 0.1", "sigma must go with rounds, found no rounds"),
    ("sample_ratio = 0.5", "sample_ratio = [0.1, 0.5] # --sigma 1.2 --rounds 3", "sigma: must lie in the range allowed, [0.05, 1], found 1.2"),
    ("sample_ratio = 0.5", "sample_ratio = [0.2, 0.5] # --sigma 0.9 --rounds 50", "the law must ask for between 1 and all 30 clients, found q ="),
    ("sample_ratio = 0.5", "sample_ratio = [0.9, 0.95] # --sigma 0.2 --rounds 20", "the law's share of clients must lie in the study's range [0.9, 0.95]"),
    ("sample_ratio = 0.5", "sample_ratio = 0.5 # --rounds 51", "rounds: must be at most rounds_max, found 51 and 50"),
])
def test_what_a_design_needs_is_said(study, fedpareto, old, new, says):
    study.write_text(study.read_text().replace(old, new))
    status, _, err = fedpareto("design", study, *WORDS, *new.partition("# ")[2].split())
    assert status == 2
    assert says in err


def test_too_few_points_are_refused(study, fedpareto):
    status, _, err = fedpareto("design", study, "--share", 1.0, "--sigmas", 3, "--seeds", 1)
    assert status == 2
    assert "at least 3 trainings inside the search box" in err
