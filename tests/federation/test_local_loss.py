"""The mean of local losses (Xiao 2025, Eq. 5): by hand, for searched rounds, and only where it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedpareto import load_study
from fedpareto.errors import SettingError, StudyError
from fedpareto.federation import Data, Federation, Lr, Mlp, Training
from fedpareto.federation.blocks import setup_of
from fedpareto.federation.data import load
from fedpareto.federation.observer import Observer
from fedpareto.mechanisms import Chain, Pruning, Quantization, Randomization
from fedpareto.problem import Objective
from fedpareto.space import Integer
from tests.conftest import STUDY

MECHANISM = Chain((Randomization(None, 1.0, 0.01), Pruning(0.3), Quantization(6)))


def federation(rounds=2, measure="xiao25_eq5", model=None, every=1):
    training = Training(0.5, rounds=rounds, local_epochs=1, batch_size=32, sample_ratio=0.5, evaluate_every=every)
    return Federation(Data("digits", 6, split="unequal", alpha=2.0), model or Lr(), training, MECHANISM, (Objective(measure),), block=4)


class Sent(Observer):
    """Keeps what clients send, and the models of every round."""

    def __init__(self):
        self.sent, self.began = [], []

    def uploads(self, s, t, clients, takes_part, upload):
        self.sent.append((t, clients, takes_part[0].numpy(), upload.values[0].numpy(), upload.model[0].numpy()))


def test_it_is_the_mean_loss_of_the_models_that_clients_send_on_what_they_hold():
    problem = federation()
    sent = Sent()
    _, found = problem.train({}, 5, sent)
    data, split = load(problem.data), setup_of(problem, 5).train_split()
    losses = []
    for t, clients, takes_part, values, model in sent.sent:
        for m, client in enumerate(clients):
            if t == 1 and takes_part[m]:  # the last round
                weight, bias = np.split(model + values[m], [64 * 10])
                mine = split.of(int(client))
                x = torch.from_numpy(data.x_train[mine]).float().flatten(1) * data.scale + data.shift
                scores = x @ torch.from_numpy(weight.reshape(10, 64)).T + torch.from_numpy(bias)
                losses.append(float(cross_entropy(scores, torch.from_numpy(data.y_train[mine]))))
    assert len(losses) == 3
    assert found["xiao25_eq5"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["xiao25_eq5"] != pytest.approx(found["test_loss"], rel=1e-3)


def test_a_run_of_more_rounds_tells_it_of_shorter_ones_and_blocks_do_not_matter():
    longer = federation(Integer("rounds", 1, 3), model=Mlp((Integer("hidden_1", 2, 6),)))
    values = {"rounds": [3, 1, 2], "hidden_1": [6, 3, 2]}
    together = longer.measure(values, [5, 5, 5])["xiao25_eq5"]
    alone = [longer.measure({n: [v[i]] for n, v in values.items()}, [5])["xiao25_eq5"][0] for i in range(3)]
    np.testing.assert_array_equal(together, alone)
    along = longer.every_round({"rounds": [3], "hidden_1": [2]}, [5])["xiao25_eq5"][0]
    assert along[1] == together[2]
    seldom = federation(Integer("rounds", 1, 3), model=Mlp((Integer("hidden_1", 2, 6),)), every=10)
    np.testing.assert_array_equal(seldom.measure(values, [5, 5, 5])["xiao25_eq5"], together)


def test_nobody_computes_it_unasked():
    problem = federation(measure="test_loss")
    assert "xiao25_eq5" not in problem.measure({}, [5])
    with pytest.raises(SettingError, match="xiao25_eq5: must be an objective or a limit to be measured, found neither"):
        problem.every_round({}, [5], ["xiao25_eq5"])


def test_a_study_may_ask_for_it_and_private_data_may_not(tmp_path):
    path = tmp_path / "study.toml"
    asked = STUDY + '\n[objectives.local]\nmeasure = "xiao25_eq5"\nreference = 3.0\n'
    path.write_text(asked)
    assert "xiao25_eq5" in load_study(path).problem.asked
    path.write_text(asked + "\n[privacy]\nprivate_data = true\n")
    with pytest.raises(StudyError, match="found xiao25_eq5: clients compute it on what they hold"):
        load_study(path)
