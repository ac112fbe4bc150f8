"""Low-cost design as a user runs it: a small experiment, k, the noise, the front, and what it cost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedpareto import load_study, theory
from fedpareto.store import Store

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
    assert (status, err) == (0, "")
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
    assert set(others) == {"full grid", "training with budget", "training until convergence"}
    assert others["full grid"]["trainings"] == 40
    assert others["training until convergence"]["rounds"] <= others["full grid"]["rounds"]
    assert all(o["points"] for o in others.values())


@pytest.mark.parametrize(("old", "new", "says"), [
    ('name = "randomization"\nsigma = [0.05, 1.0]', 'name = "none"', "needs a study of a federation with the mechanism randomization"),
    ("sigma = [0.05, 1.0]", "sigma = 0.5", "mechanism.sigma must be a range to design within, found 0.5"),
    ("sigma = [0.05, 1.0]", "sigma = [0.0, 1.0]", "mechanism.sigma must start above 0, found 0"),
    ("learning_rate = 0.05", "learning_rate = [0.05, 0.5]", "training.learning_rate and mechanism.clipping_norm must be fixed"),
    ("[privacy]", "[privacy]\nprivate_data = true", "privacy.private_data must be false, found true"),
])
def test_what_a_design_needs_is_said(study, fedpareto, old, new, says):
    study.write_text(study.read_text().replace(old, new))
    status, _, err = fedpareto("design", study, *WORDS)
    assert status == 2
    assert says in err


def test_too_few_points_are_refused(study, fedpareto):
    status, _, err = fedpareto("design", study, "--share", 1.0, "--sigmas", 3, "--seeds", 1)
    assert status == 2
    assert "at least 3 trainings inside the search box" in err
