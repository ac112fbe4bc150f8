"""A deployment with a study's random numbers is the study's own training, round by round."""

from __future__ import annotations

import pytest
from replayed import REPLAY, World, study_of

from fedpareto.deploy.pricing import price
from fedpareto.errors import DeploymentError

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.a = nn.Linear(64, width)
        self.b = nn.Linear(width, 10)

    def forward(self, x):
        return self.b(self.a(x.flatten(1)).tanh())
"""
NOISE = {"name": "randomization", "noise_multiplier": 0.5, "clipping_norm": 1.0}
CASES = {
    "randomization": {},
    "poisson": {"training": {"sampling": "poisson", "sample_ratio": 0.3}},
    "private values": {
        "mechanism": {"name": "sparsification", "private_fraction": 0.3, "connection_probability": 0.7},
        "server": {"name": "momentum"},
    },
    "chain": {
        "mechanism": {"name": "chain", "links": [{"name": "sparsification", "private_fraction": 0.2}, NOISE,
                                                 {"name": "quantization", "bits": 8}]},
        "server": {"name": "adam"},
    },
    "records": {"mechanism": {"name": "none"}, "local": {"name": "dp_sgd", "record_noise_multiplier": 0.8},
                "privacy": {"unit": "record"}},
    "own module": {"model": {"name": "nets:Net", "width": 12}},
    "unequal sites": {"data": {"split": "dirichlet", "alpha": 0.5}},
}


@pytest.fixture
def in_a_test(monkeypatch):
    monkeypatch.setenv(REPLAY, "in a test")


@pytest.mark.parametrize("case", CASES)
def test_a_deployment_with_the_studys_random_numbers_is_its_simulation(case, tmp_path, in_a_test):
    (tmp_path / "nets.py").write_text(NET)
    world = World(study_of(tmp_path, **CASES[case]), tmp_path)
    progress = world.serve()
    weights, errors = world.simulated()
    assert [of["test_error"] for of in progress.measures] == errors
    found = world.weights()
    assert set(found) == set(weights)
    for name, expected in weights.items():
        assert (found[name] - expected).abs().max() < 1e-5, name
    for view, of in price(tmp_path / "server" / "ledger.jsonl").items():
        assert of["epsilon"] == of["planned"] == world.agreed.planned[view]


def test_a_replay_is_refused_outside_tests(tmp_path, monkeypatch):
    monkeypatch.delenv(REPLAY, raising=False)
    study = study_of(tmp_path)
    with pytest.raises(DeploymentError, match="replay: must stay within tests, found a seed"):
        World(study, tmp_path)
    world = World(study, tmp_path, replay=False)
    world.replay = True
    with pytest.raises(DeploymentError, match="replay: must stay within tests"):
        _ = world.server


def test_the_system_draws_anew_in_every_deployment(tmp_path):
    """Two deployments of one study differ: nothing of it is left of the study's seed but the first model."""
    study = study_of(tmp_path)
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        world = World(study, tmp_path / name, replay=False)
        assert world.serve().done
        found.append(world.weights())
    assert all((found[0][name] != found[1][name]).any() for name in found[0])
