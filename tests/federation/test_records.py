"""Local steps that hide records: sums like Opacus's, noise as stated, nothing that tells how many records there were."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import math
import warnings
from itertools import pairwise

import dp_sgd_by_hand
import numpy as np
import pytest
import torch
from torch import nn

from fedpareto import (
    BatchCrypt,
    Chain,
    Data,
    DpSgd,
    Federation,
    Lr,
    Mlp,
    Quantization,
    Randomization,
    Sparsification,
    Training,
    Unprotected,
)
from fedpareto.errors import ModelError, SettingError
from fedpareto.federation import records
from fedpareto.federation.blocks import prepared, setup_of
from fedpareto.federation.clients import Clients
from fedpareto.federation.cohorts import Cohort, chance_batches
from fedpareto.federation.columns import contract_of, given_of
from fedpareto.federation.losses import CrossEntropy
from fedpareto.federation.records import add_clipped
from fedpareto.federation.stack import Stack, stack
from fedpareto.federation.state import start
from fedpareto.noise import Noise, derive
from fedpareto.privacy import Privacy
from fedpareto.space import Choice, Float, Integer

IMAGE = (1, 14, 14)
SLOTS, FEDERATIONS = 2, 2


class Words(nn.Module):
    """Scores of a bag of words: an embedding, its mean, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.embedding((x * 7).long()).mean(1))


class Twice(nn.Module):
    """One layer that is called twice: its gradients add up before they are clipped."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.last = nn.Linear(196, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.conv(self.conv(x).relu()).flatten(1))


def dense(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.Flatten(),
                         nn.Linear(144, 20), nn.Sigmoid(), nn.Linear(20, 5))


def norms() -> nn.Sequential:  # the last convolution has fewer places than weights: its norm goes by products between places
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 64, 3, padding=1, bias=False),
                         nn.GroupNorm(4, 64), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5))


class Unheard(nn.Module):
    """A layer whose output goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 8)
        self.unheard = nn.Linear(8, 3)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).relu()
        self.unheard(hidden)
        return self.last(hidden)


class Shared(nn.Module):
    """Two layers with the same weights: their gradients add up before they are clipped."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.second = nn.Linear(12, 12)
        self.second.weight = self.first.weight
        self.last = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


MODELS = {"lr": (dense(196, 5), IMAGE, True), "mlp": (dense(196, 24, 12, 5), IMAGE, True), "lenet": (lenet(), IMAGE, True),
          "cnn with group norm": (norms(), IMAGE, True), "embedding and linear": (Words(), (12,), False), "a layer called twice": (Twice(), IMAGE, True),
          "a layer unheard": (Unheard(), (12,), True), "shared weights": (Shared(), (12,), False)}


def drawn(module: nn.Module, shape: tuple[int, ...], batch: int):
    """Return parameters [M,R,...], inputs [B,M,...], labels [B,M] and which records are there; slot 0 has none."""
    draw = torch.Generator().manual_seed(batch)
    params = [torch.randn(SLOTS, FEDERATIONS, *p.shape, generator=draw) * 0.3 for p in module.parameters()]
    x = torch.rand(batch, SLOTS, *shape, generator=draw) * 2
    y = torch.randint(0, 5, (batch, SLOTS), generator=draw)
    there = (torch.rand(batch, SLOTS, generator=draw) < 0.8).float()
    there[:, 0] = 0
    return params, x, y, there


def clipped_sums(made: Stack, params, *rest) -> list[torch.Tensor]:
    totals = [torch.zeros_like(p) for p in params]
    add_clipped(totals, made, params, *rest)
    return totals


def by_opacus(module: nn.Module, params, x, y, there, norm: float) -> list[torch.Tensor]:
    """Return the clipped sum of one model's gradients, as Opacus has them record by record."""
    from opacus import GradSampleModule

    model = copy.deepcopy(module)
    for p, value in zip(model.parameters(), params, strict=True):
        p.data.copy_(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's hooks, on behalf of Opacus
        wrapped = GradSampleModule(model, loss_reduction="sum")
        nn.functional.cross_entropy(wrapped(x), y, reduction="sum").backward()
    gradients = [of_records(p, len(x)) for p in model.parameters()]
    length = sum(g.flatten(1).square().sum(1) for g in gradients).sqrt()
    share = (norm / length).clamp_max(1.0) * there
    return [torch.einsum("b,b...->...", share, g) for g in gradients]


def of_records(p, count: int) -> torch.Tensor:
    """Return the gradients of one parameter that Opacus holds: none for what was not heard, several where it was used twice."""
    if p.grad_sample is None:
        return torch.zeros(count, *p.shape)
    return p.grad_sample if isinstance(p.grad_sample, torch.Tensor) else sum(p.grad_sample)


@pytest.mark.skipif(importlib.util.find_spec("opacus") is None, reason="opacus is not installed: pip install opacus")
@pytest.mark.parametrize("batch", [1, 7, 40])
@pytest.mark.parametrize("name", MODELS)
def test_sums_of_clipped_gradients_are_those_of_opacus(name, batch):
    module, shape, fast = MODELS[name]
    made = stack(module, shape, 5)
    assert (made.fast is not None) == fast
    params, x, y, there = drawn(module, shape, batch)
    norm = torch.tensor([0.5, 5.0])
    found = clipped_sums(made, params, x, y, there, CrossEntropy(), norm)
    written = clipped_sums(Stack(module, None), params, x, y, there, CrossEntropy(), norm)
    for r in range(FEDERATIONS):
        assert all(float(f[0, r].abs().max()) == 0 for f in found)  # nobody is in the batch of slot 0
        right = by_opacus(module, [p[1, r] for p in params], x[:, 1], y[:, 1], there[:, 1], float(norm[r]))
        size = max(float(p.abs().max()) for p in right) + 1e-12
        for want, one, other in zip(right, found, written, strict=True):
            assert float((one[1, r] - want).abs().max()) <= 1e-5 * size
            assert float((other[1, r] - want).abs().max()) <= 1e-5 * size


@pytest.mark.parametrize("name", MODELS)
def test_no_record_moves_a_sum_by_more_than_the_norm(name):
    module, shape, _ = MODELS[name]
    made = stack(module, shape, 5)
    params, x, y, _ = drawn(module, shape, 1)
    params = [p * 20 for p in params]
    for norm in (1e-3, 1.0):
        sums = clipped_sums(made, params, x, y, torch.ones(1, SLOTS), CrossEntropy(), torch.full((FEDERATIONS,), norm))
        length = sum(s.double().flatten(2).square().sum(2) for s in sums).sqrt()
        assert (length <= norm).all()
        assert (length > 0.999 * norm).any()


@pytest.mark.parametrize("name", ["mlp", "cnn with group norm", "embedding and linear"])
def test_gradients_of_records_in_small_pieces_are_the_same(name, monkeypatch):
    module, shape, _ = MODELS[name]
    made = stack(module, shape, 5)
    held = drawn(module, shape, 7)
    whole = clipped_sums(made, *held, CrossEntropy(), torch.tensor([0.5, 5.0]))
    monkeypatch.setattr(records, "ROOM", 1)
    for one, other in zip(whole, clipped_sums(made, *held, CrossEntropy(), torch.tensor([0.5, 5.0])), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn with group norm"])
@pytest.mark.parametrize("bad", [float("inf"), float("nan"), 1e30])
def test_a_record_without_a_finite_gradient_counts_as_zero(name, bad):
    module, shape, _ = MODELS[name]
    made = stack(module, shape, 5)
    params, x, y, there = drawn(module, shape, 6)
    there[:] = 1
    norm = torch.ones(FEDERATIONS)
    x[2] = bad
    found = clipped_sums(made, params, x, y, there, CrossEntropy(), norm)
    assert all(torch.isfinite(f).all() for f in found)
    if bad != 1e30:  # of what is only large, the gradient may be finite after all
        left_out = there.clone()
        left_out[2] = 0
        x[2] = 0
        for one, other in zip(found, clipped_sums(made, params, x, y, left_out, CrossEntropy(), norm), strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


HIDDEN = DpSgd(1.0, 0.5)
BARE = Unprotected()
SMALL = Lr()
FEW = Data("digits", 4, share=0.3)
RECORD = Privacy(unit="record")


def federation(local=HIDDEN, mechanism=BARE, model=SMALL, privacy=RECORD, data=FEW, **training):
    asked = {"rounds": 2, "local_steps": 3, "batch_size": 16, "device": "cpu"} | training
    return Federation(data, model, Training(0.5, **asked), mechanism, (), local=local, privacy=privacy)


def test_training_is_that_by_hand(monkeypatch):
    monkeypatch.setattr(dp_sgd_by_hand, "RATE", 0.5)
    problem = federation(data=Data("digits", 4, share=0.1))
    hand = dp_sgd_by_hand.train(setup_of(problem, 3), problem.local, 2)
    module, _ = problem.train({}, 3)
    for one, other in zip(module.parameters(), hand.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def one_round(problem: Federation, seed: int = 0, rows: int = 1):
    """Return the block of a problem's settings and what all clients trained in the first round."""
    values = {name: [v.decode(0.5)] * rows for name, v in zip(problem.space.names, problem.space.variables, strict=True)}
    block = prepared(problem, values, given_of(problem, values, rows), np.arange(rows), [setup_of(problem, seed)], problem.data.clients)
    everyone = Cohort(np.arange(problem.data.clients), np.full(rows, problem.data.clients))
    return block, list(Clients(block).trained(start(block), [everyone], 0))


def test_noise_has_the_stated_strength_and_is_own_to_each_client_and_step():
    problem = federation(DpSgd(1e4, 0.5), model=Mlp((40,)), local_steps=4)
    _, pieces = one_round(problem)
    updates = torch.cat([p.values[0][0] for p in pieces])  # [K,P]; the noise is all there is
    sigma = 0.5 * 1e4 * 0.5 / 16 * 4**0.5  # rate × z × norm / batch × √steps
    strength = updates.double().std(1) / sigma
    assert torch.allclose(strength, torch.ones(4, dtype=torch.float64), atol=4 / (2 * updates.shape[1]) ** 0.5)
    assert (torch.corrcoef(updates) - torch.eye(4)).abs().max() < 5 / updates.shape[1] ** 0.5
    _, once = one_round(dataclasses.replace(problem, training=dataclasses.replace(problem.training, local_steps=1)))
    first = torch.cat([p.values[0][0] for p in once])
    both = torch.stack([first.flatten(), (updates - first).flatten()])
    assert torch.corrcoef(both)[0, 1].abs() < 5 / both.shape[1] ** 0.5


def test_a_step_without_records_is_taken_all_the_same():
    problem = federation(DpSgd(1.0, 0.5), batch_size=1, local_steps=40)
    setup = setup_of(problem, 0)
    split = setup.train_split()
    empty = [(setup.batches(split, k, 0) < 0).all(1).sum() for k in range(4)]
    assert min(empty) > 5  # about a third of the steps
    _, pieces = one_round(problem)
    assert torch.cat([p.steps[0] for p in pieces]).flatten().tolist() == [40] * 4
    silent = dataclasses.replace(problem, local=DpSgd(0.0, 1e-9))
    _, nothing = one_round(silent)
    assert max(float(p.values[0].abs().max()) for p in nothing) < 1e-6
    updates = torch.cat([p.values[0][0] for p in pieces])
    noise = Noise(derive(0, "records"), 0, [0, 1, 2, 3])
    drawn = sum(noise.normal(updates.shape[1]) for _ in range(40))
    # what is left beside the noise of all 40 steps is what records add, at most a rate × norm each
    assert (updates + 0.5 * 0.5 * drawn).norm(dim=1).max() <= 0.5 * 0.5 * (setup.batches(split, 0, 0) >= 0).sum() * 2


def test_each_record_is_in_a_step_by_its_own_chance():
    picks = chance_batches(1, 0, 0, 500, 400, 0.1)
    count = (picks >= 0).sum(1)
    assert abs(count.mean() - 50) < 5 * (45 / 400) ** 0.5
    assert 0.7 < count.var() / 45 < 1.4  # a binomial number
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in picks)
    often = np.bincount(picks[picks >= 0], minlength=500)
    assert 0.75 < often.var() / 36 < 1.3  # of 400 steps, each record's alike and on its own


def test_a_mini_batch_that_is_larger_than_expected_is_not_cut_short():
    problem = federation(DpSgd(0.0, 1e6), batch_size=4, local_steps=1, rounds=1, data=Data("digits", 2, share=0.1))
    block, pieces = one_round(problem, seed=5)
    sizes = [(block.setup.batches(block.splits[0], k, 0) >= 0).sum() for k in range(2)]
    assert max(sizes) > 4
    updates = torch.cat([p.values[0][0] for p in pieces])
    model = block.setup.module(Lr())
    for k in range(2):
        batch = block.setup.batches(block.splits[0], k, 0)[0]
        rows = batch[batch >= 0]
        x = torch.from_numpy(block.setup.data.x_train[rows]) * block.setup.data.scale
        loss = nn.functional.cross_entropy(model(x), torch.from_numpy(block.setup.data.y_train[rows]), reduction="sum")
        right = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]) * -0.5 / 4
        assert torch.allclose(updates[k], right, rtol=1e-3, atol=1e-6)


def test_a_narrow_model_has_noise_where_it_has_parameters_alone():
    model = Mlp((8,))
    wide = federation(DpSgd(1.0), model=model)
    alone = wide.train({}, 2)[0]
    searched = federation(DpSgd(1.0), model=Mlp((Integer("hidden_1", 4, 24),)))
    module, _ = searched.train({"hidden_1": 8}, 2)
    assert [p.shape for p in module.parameters()] == [p.shape for p in alone.parameters()]
    assert all(torch.isfinite(p).all() for p in module.parameters())
    values = {"hidden_1": [8, 24]}
    block = prepared(searched, values, given_of(searched, values, 2), np.arange(2), [setup_of(searched, 2)], 4)
    everyone = Cohort(np.arange(4), np.full(2, 4))
    update = next(iter(Clients(block).trained(start(block), [everyone], 0))).values[0]
    beyond = (block.exists[0, 0] == 0)
    assert beyond.any()
    assert float(update[0][:, beyond].abs().max()) == 0


def test_a_row_does_not_depend_on_its_neighbours_and_shares_their_noise():
    problem = federation(DpSgd(Float("record_noise_multiplier", 0.5, 2.0), Float("record_clipping_norm", 0.1, 1.0)))
    together = problem.measure({"record_noise_multiplier": [0.5, 2.0], "record_clipping_norm": [0.3, 0.3]}, [1, 1])
    alone = problem.measure({"record_noise_multiplier": [2.0], "record_clipping_norm": [0.3]}, [1])
    assert together["test_loss"][1] == alone["test_loss"][0]
    assert together["test_loss"][0] != alone["test_loss"][0]


MECHANISMS = {"none": Unprotected(), "clipping and noise": Randomization(0.1), "sparsification": Sparsification(0.5),
              "quantization": Quantization(8), "noise, then rounding": Chain((Randomization(0.1), Quantization(8))), "batchcrypt": BatchCrypt()}


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@pytest.mark.parametrize("batches", ["poisson", "shuffled"])
def test_it_goes_with_every_mechanism_and_costs_what_was_known(mechanism, batches):
    training = {"local_steps": 3} if batches == "poisson" else {"local_steps": 0, "local_epochs": 1}
    noise = {"record_noise_multiplier": [1.0]}
    problem = federation(DpSgd(Float("record_noise_multiplier", 0.5, 2.0), batches=batches), mechanism, **training)
    alone = federation(DpSgd(1.0, batches=batches), **training)
    rows = problem.measure(noise, [0])
    assert np.isfinite(rows["test_loss"][0])
    assert rows["epsilon"] == rows["epsilon_record"] == alone.columns({}, 1)["epsilon"]
    known = problem.known(noise, ["training_seconds", "upload_bytes", "epsilon", "epsilon_record", "epsilon_client"])
    assert {"epsilon", "epsilon_record"} <= known.keys()
    for name, value in known.items():
        assert value[0] == pytest.approx(rows[name][0], rel=1e-9), name
    assert ("epsilon_client" in rows) == ("noise" in next(n for n, m in MECHANISMS.items() if m is mechanism))


def test_beside_a_client_level_headline_stands_that_of_a_record():
    problem = federation(mechanism=Randomization(0.5), privacy=Privacy())
    columns = problem.columns({}, 1)
    assert columns["epsilon_record"] == federation(privacy=Privacy(unit="record", target_delta=1e-5)).columns({}, 1)["epsilon"]
    plain = dataclasses.replace(problem, local=type(Federation.__dataclass_fields__["local"].default_factory())())
    assert columns["epsilon"] == plain.columns({}, 1)["epsilon"]


def test_on_private_data_noise_is_own_to_each_training():
    private = federation(DpSgd(Float("record_noise_multiplier", 0.5, 2.0)), privacy=Privacy(unit="record", private_data=True))
    rows = private.measure({"record_noise_multiplier": [1.0, 1.0 + 1e-9]}, [2**255, 2**255])
    assert rows["test_loss"][0] != rows["test_loss"][1]
    assert "training_seconds" in rows  # by those expected in a step, not by those there were
    again = private.measure({"record_noise_multiplier": [1.0]}, [2**255])
    assert again["test_loss"][0] == rows["test_loss"][0]


SITES = Data("breast-cancer", 12, split="site", label="diagnosis", site="hospital", standardise="site")


@pytest.mark.parametrize("batch", [4, 9])
def test_steps_chances_and_noise_of_unequal_clients_are_those_of_the_statement(batch):
    """Searched passes of clients of all sizes, some with steps that others do not take: what is trained, and what is priced."""
    work = {"local_steps": 0, "local_epochs": Integer("local_epochs", 1, 3), "batch_size": Choice("batch_size", (4, 9)), "rounds": 1}
    problem = federation(DpSgd(1e4, 0.5), model=Mlp((40,)), data=SITES, **work)
    values = {"local_epochs": [1, 3], "batch_size": [batch] * 2}
    given = given_of(problem, values, 2)
    block = prepared(problem, values, given, np.arange(2), [setup_of(problem, 0)], 12)
    everyone = Cohort(np.arange(12), np.full(2, 12))
    pieces = list(Clients(block).trained(start(block), [everyone], 0))
    steps = torch.cat([p.steps[0] for p in pieces])  # [K,R]
    sizes = block.splits[0].sizes
    priced = contract_of(problem, problem.columns(values, 2)).records
    assert steps.tolist() == [np.broadcast_to(priced.steps_of(size), 2).tolist() for size in sizes.tolist()]
    for r, epochs in enumerate(values["local_epochs"]):
        updates = torch.cat([p.values[0][r] for p in pieces]).double()
        sigma = 0.5 * 1e4 * 0.5 / batch * steps[:, r].double().sqrt()
        assert torch.allclose(updates.std(1) / sigma, torch.ones(12, dtype=torch.float64), atol=4.5 / (2 * updates.shape[1]) ** 0.5)
        promised = problem.guarantee({"local_epochs": epochs, "batch_size": batch})
        assert f"It counts 1 round of {math.ceil(21 / batch) * epochs} local steps of a client with 21 records" in promised.statement()
        assert f"a chance of its own of {batch / 21:.4g} " in promised.statement()


def test_the_records_of_a_step_are_drawn_by_the_chance_that_is_priced_whoever_is_missing():
    setup = setup_of(federation(data=SITES, batch_size=9, local_steps=400), 0)
    split = setup.train_split()
    for client in (0, 11):
        mine = split.of(client)
        for held in (mine, mine[1:]):  # a record that is left out changes no other's chance
            picks = setup.batches_of(held, client, 0, len(mine))
            assert (picks >= 0).sum() / (400 * len(held)) == pytest.approx(9 / len(mine), rel=0.1)


REFUSED = {
    "a mini-batch larger than a client": ({"batch_size": 200}, {}, "training.batch_size: must be at most the 107 records of client"),
    "weights by size": ({"weighting": "size"}, {}, "training.weighting: must be uniform where local steps hide records, found size"),
    "shuffled batches by steps": ({}, {"local": DpSgd(1.0, batches="shuffled")}, "local.batches: must be poisson where local_steps is given, found shuffled"),
    "no room to clip to": ({}, {"local": DpSgd(1.0, 0.0)}, "local.record_clipping_norm: must be above 0 and finite, .*found 0"),
    "a norm below 0": ({}, {"local": DpSgd(1.0, Float("record_clipping_norm", -1.0, 1.0))}, "local.record_clipping_norm: must be above 0 and finite, .*found -1"),
    "a norm without end": ({}, {"local": DpSgd(1.0, math.inf)}, "local.record_clipping_norm: must be above 0 and finite, .*found inf"),
    "noise that is no number": ({}, {"local": DpSgd(math.nan)}, "local.record_noise_multiplier: must be at least 0 and finite, found nan"),
    "a loss of the batch": ({"loss": "test_records:batch_loss"}, {}, "must treat each record by itself where local steps hide records"),
}


def batch_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    each = nn.functional.cross_entropy(scores, labels, reduction="none")
    return each * each.mean()


@pytest.mark.parametrize(("training", "rest", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_hide_a_record_is_refused(training, rest, message):
    with pytest.raises(SettingError, match=message):
        federation(**rest, **training).check()


def test_batch_norm_is_refused():
    with pytest.raises(ModelError, match="must not keep batch statistics"):
        stack(nn.Sequential(nn.Flatten(), nn.Linear(196, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)), IMAGE, 5)
