"""Losses and measures of one's own: slopes against autograd, and in federations."""

from __future__ import annotations

import re
import sys
import types

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional as F

from fedpareto import Data, Federation, Float, Lr, Objective, Randomization, Training
from fedpareto.errors import DataError, SettingError
from fedpareto.federation.data import load
from fedpareto.federation.losses import LOSSES, CrossEntropy, Mse, OwnLoss, loss_of
from fedpareto.testing import check_loss

SCORES = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))  # [M,R,C,B]
LABELS = torch.randint(0, 4, (2, 5), generator=torch.Generator().manual_seed(1))  # [M,B]


@pytest.fixture
def own(monkeypatch):
    """A module of the user's own, with losses and measures."""
    module = types.ModuleType("own_losses")
    module.entropy = lambda scores, labels: F.cross_entropy(scores, labels, reduction="none")
    module.mean = lambda scores, labels: F.cross_entropy(scores, labels)
    module.error = lambda scores, labels: float((scores.argmax(1) != labels).mean())
    module.one_minus_auc = lambda scores, labels: 1 - roc_auc_score(labels == 1, scores[:, 1])
    module.words = lambda scores, labels: "bad"
    monkeypatch.setitem(sys.modules, "own_losses", module)
    return module


def by_autograd(loss, scores, labels):
    leaf = scores.clone().requires_grad_()
    total = sum(loss.each(leaf[m], labels[m]).sum() for m in range(len(scores)))
    return torch.autograd.grad(total, leaf)[0]


@pytest.mark.parametrize("loss", [CrossEntropy(), Mse()], ids=lambda x: type(x).__name__)
def test_the_slope_is_the_gradient_of_the_loss(loss):
    torch.testing.assert_close(loss.slope(SCORES, LABELS), by_autograd(loss, SCORES, LABELS))


def test_mse_is_the_squared_distance_from_the_class_or_the_number():
    expected = (SCORES[0] - F.one_hot(LABELS[0], 4).T).square().mean(1)
    torch.testing.assert_close(Mse().each(SCORES[0], LABELS[0]), expected)
    number, targets = SCORES[:, :, :1], torch.randn(2, 5)
    torch.testing.assert_close(Mse().each(number[0], targets[0]), (number[0, :, 0] - targets[0]).square())
    torch.testing.assert_close(Mse().slope(number, targets), by_autograd(Mse(), number, targets))


def test_a_loss_of_ones_own_trains_as_the_built_in_one(own):
    torch.testing.assert_close(OwnLoss("own_losses:entropy").slope(SCORES, LABELS), CrossEntropy().slope(SCORES, LABELS))

    def trained(loss):
        training = Training(0.3, rounds=3, local_epochs=1, batch_size=32, loss=loss)
        return Federation(Data("digits", 5), Lr(), training, Randomization(1e-3), ()).measure({}, [1])

    ours, theirs = trained("cross_entropy"), trained("own_losses:entropy")
    assert theirs["test_loss"] == pytest.approx(ours["test_loss"], rel=1e-4)
    assert trained("mse")["test_loss"] != pytest.approx(ours["test_loss"], rel=1e-2)


def test_a_loss_that_takes_the_mean_is_refused(own):
    with pytest.raises(SettingError, match=r"must return a tensor with one loss for each record, \[30\], found shape \[\]. Do not take"):
        loss_of("own_losses:mean").slope(SCORES, LABELS)


def test_an_unknown_loss_is_refused():
    with pytest.raises(SettingError, match=r"loss: there is no loss 'cross_entrpy'. Did you mean 'cross_entropy'"):
        Training(0.1, local_steps=1, loss="cross_entrpy")


def federation(*measures, **training):
    training = {"rounds": 3, "local_epochs": 1, "batch_size": 32} | training
    return Federation(Data("digits", 5, "dirichlet", alpha=2.0), Lr(), Training(Float("learning_rate", 0.05, 0.5), **training),
                      Randomization(1e-3), tuple(Objective(f"o{i}", m) for i, m in enumerate(measures)), block=2)


VALUES = {"learning_rate": [0.1, 0.4]}


def test_a_measure_of_ones_own_is_measured_for_all_and_for_the_worst_client(own):
    found = federation("own_losses:error", "own_losses:error@worst").measure(VALUES, [3, 3])
    np.testing.assert_allclose(found["own_losses:error"], found["test_error"], atol=1e-6)
    np.testing.assert_allclose(found["own_losses:error@worst"], found["test_error_worst"], atol=1e-6)


def test_auc_is_that_of_the_model_which_train_returns(own):
    problem = federation("own_losses:one_minus_auc")
    model, measures = problem.train({"learning_rate": 0.4}, 3)
    data = load(problem.data)
    with torch.no_grad():
        scores = model(torch.from_numpy(data.x_test) * data.scale)
    truth = 1 - roc_auc_score(data.y_test == 1, scores[:, 1])
    assert measures["own_losses:one_minus_auc"] == pytest.approx(truth, abs=1e-6)
    assert measures == pytest.approx({k: v[1] for k, v in problem.measure(VALUES, [3, 3]).items()}, nan_ok=True, rel=0, abs=0)


def test_a_measure_of_ones_own_is_told_after_every_round(own):
    _, way = federation("own_losses:error").measure_along(VALUES, [3, 3])
    assert way["own_losses:error"].shape == (2, 3)
    assert np.isfinite(way["own_losses:error"]).all()


def test_a_measure_that_is_no_number_is_refused(own):
    with pytest.raises(SettingError, match="measure 'own_losses:words': must return one number, found str"):
        federation("own_losses:words").measure(VALUES, [3, 3])


@pytest.fixture
def prices(tmp_path):
    """Numbers to predict: a line with little noise, as an .npz file."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(300, 4)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.01 * draw.normal(size=300)).astype(np.float64)
    np.savez(tmp_path / "prices.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
    return str(tmp_path / "prices.npz")


def regression(data, split="iid", loss="mse", measure="own_losses:mae", **more):
    training = Training(0.05, rounds=10, local_epochs=2, batch_size=20, loss=loss)
    return Federation(Data(data, 4, split), Lr(), training, Randomization(1e-4, 1e3), (Objective("o", measure),), **more)


def test_numbers_are_predicted_with_mse_and_judged_by_ones_own_measure(own, prices):
    own.mae = lambda scores, labels: float(np.abs(scores[:, 0] - labels).mean())
    problem = regression(prices)
    problem.check()
    found = problem.measure({}, [0])
    assert found["own_losses:mae"][0] < 0.05
    assert np.sqrt(found["test_loss"][0]) < 0.07
    assert np.isnan(found["test_error"][0])
    assert problem.split_table(0).tolist() == [[50]] * 4


@pytest.mark.parametrize(("changed", "says"), [
    ({"loss": "cross_entropy"}, "training.loss: must be mse or your own where labels are floats to predict, found cross_entropy"),
    ({"measure": "test_error"}, "objectives.o: must not count wrong classes where labels are floats to predict, found test_error"),
    ({"split": "dirichlet"}, "data.split: must be iid or unequal where numbers are predicted, found dirichlet"),
    ({"loss": "own_losses:mean"}, "training.loss: 'own_losses:mean' must return a tensor with one loss for each record"),
    ({"loss": "own_losses:gone"}, "training.loss: 'own_losses:gone' must be importable"),
    ({"loss": "own_losses:broken"}, "training.loss: 'own_losses:broken' must take scores [100, 1] and labels [100], found ZeroDivisionError"),
    ({"measure": "own_losses:gone"}, "'own_losses:gone' must be importable"),
    ({"measure": "own_losses:words"}, "measure 'own_losses:words': must return one number, found str"),
])
def test_what_does_not_fit_numbers_is_refused_before_anything_runs(own, prices, changed, says):
    own.mae = lambda scores, labels: float(np.abs(scores[:, 0] - labels).mean())
    own.mean = lambda scores, labels: (scores[:, 0] - labels).square().mean()
    own.broken = lambda scores, labels: 1 / 0
    with pytest.raises((SettingError, DataError), match=re.escape(says)):
        regression(prices, **changed).check()


@pytest.mark.parametrize("name", [*LOSSES, "own_losses:entropy"])
def test_every_loss_keeps_the_contract(own, name):
    check_loss(loss_of(name))


def test_a_loss_whose_slope_is_not_its_gradient_is_found():
    class Steep(CrossEntropy):
        def slope(self, scores, labels):
            return 2 * super().slope(scores, labels)

    with pytest.raises(AssertionError, match="a slope must be how each record's loss grows"):
        check_loss(Steep())


def test_a_function_called_worst_is_itself(own):
    own.error_worst = lambda scores, labels: 123.0
    found = federation("own_losses:error_worst", "own_losses:error@worst").measure(VALUES, [3, 3])
    assert found["own_losses:error_worst"].tolist() == [123.0, 123.0]
    np.testing.assert_allclose(found["own_losses:error@worst"], found["test_error_worst"], atol=1e-6)


def test_a_measure_may_write_into_what_it_is_given(own):
    def greedy(scores, labels):
        labels[:] = 0
        scores[:] = np.nan
        return 0.5

    own.greedy = greedy
    plain = federation("own_losses:error").measure(VALUES, [3, 3])
    for _ in range(2):
        found = federation("own_losses:greedy", "own_losses:error").measure(VALUES, [3, 3])
        for name in ("test_error", "test_loss", "own_losses:error"):
            np.testing.assert_array_equal(found[name], plain[name])


@pytest.mark.parametrize(("loss", "says"), [
    (lambda scores, labels: F.cross_entropy(scores, labels, reduction="none").detach(), "found RuntimeError"),
    (lambda scores, labels: F.cross_entropy(scores.double(), labels, reduction="none"), "must return float32, as the scores are, found torch.float64"),
])
def test_a_loss_without_slope_or_of_another_kind_of_number_is_refused_before_anything_runs(own, loss, says):
    own.bad = loss
    with pytest.raises(SettingError, match=says):
        federation("test_error", loss="own_losses:bad").check()
