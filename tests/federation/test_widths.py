"""Searched widths: a narrow model trained as a mask over the widest, against the narrow model itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import fedavg_by_hand as by_hand
import numpy as np
import pytest
import torch
from torch import nn
from trained import train

from fedpareto import (
    Data,
    DpSgd,
    Federation,
    Integer,
    Mlp,
    Objective,
    Randomization,
    Training,
    load_study,
)
from fedpareto.errors import ModelError, StudyError
from fedpareto.federation.models import Lenet, Lenet5
from fedpareto.federation.setup import Setup
from fedpareto.federation.sizes import size_of
from fedpareto.privacy import kang23_eq13
from fedpareto.settings import Whole
from fedpareto.space import Choice

ROUNDS, CLIENTS = 3, 3
BARE = Randomization(0.0, 1e9)
TIGHT = Randomization(0.0, 0.2)  # clips every update
NOISY = Randomization(0.02, 0.5)
MLP = (Mlp((Integer("hidden_1", 1, 16), Integer("hidden_2", 2, 12))),
       [{"hidden_1": a, "hidden_2": b} for a, b in ((1, 12), (16, 2), (5, 7), (16, 12))])
HALF = (Mlp((Integer("hidden_1", 1, 16), 8)), [{"hidden_1": a} for a in (1, 3, 16)])
LENET = (Lenet((Integer("channels_1", 1, 6), Integer("channels_2", 1, 5)), (Integer("neurons_1", 1, 10), 6)),
         [{"channels_1": a, "channels_2": b, "neurons_1": c} for a, b, c in ((1, 5, 3), (6, 1, 10), (4, 3, 7), (6, 5, 10))])


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> str:
    """The path of 60 training and 20 test images, 1×16×16, in four classes that differ in brightness."""
    path, draw, arrays = tmp_path_factory.mktemp("images") / "images.npz", np.random.default_rng(5), {}
    for part, n in (("train", 60), ("test", 20)):
        y = np.arange(n) % 4
        arrays |= {f"x_{part}": (draw.integers(0, 120, (n, 1, 16, 16)) + 40 * y[:, None, None, None]).astype(np.uint8), f"y_{part}": y}
    np.savez(path, **arrays)
    return str(path)


def federation(images: str, model, mechanism, block: int = 4, **training) -> Federation:
    settings = {"learning_rate": 0.3, "rounds": ROUNDS, "local_steps": 4, "batch_size": 4} | training
    return Federation(Data(images, CLIENTS), model, Training(**settings), mechanism, (Objective("test_loss"),), block)


def narrow(model, width: dict[str, int]):
    """Return the model with these widths and none to search."""
    kept = {name: tuple(width[w.name] if isinstance(w, Integer | Choice) else w for w in value) for name, value in vars(model).items()}
    return type(model)(**kept)


def in_one_block(problem: Federation, widths: list[dict[str, int]], seed: int = 3) -> dict[str, np.ndarray]:
    return problem.measure({name: [w[name] for w in widths] for name in widths[0]}, [seed] * len(widths))


def by_themselves(images: str, model, widths: list[dict[str, int]], mechanism, seed: int = 3, **training) -> list[dict[str, float]]:
    """Measure every narrow model in a federation of its own that has never heard of wider ones."""
    each = [federation(images, narrow(model, w), mechanism, block=1, **training).measure({}, [seed]) for w in widths]
    return [{name: float(column[0]) for name, column in measured.items()} for measured in each]


@pytest.mark.parametrize("training", [{}, {"momentum": 0.9, "learning_rate": 0.05},
                                      {"sample_ratio": 0.67, "local_steps": 0, "local_epochs": 1}])
@pytest.mark.parametrize(("model", "widths"), [MLP, HALF, LENET], ids=["mlp", "one searched, one fixed", "lenet"])
@pytest.mark.parametrize("mechanism", [BARE, TIGHT], ids=["bare", "clipped"])
def test_different_widths_in_one_block_train_as_the_narrow_models_themselves(model, widths, mechanism, training, images):
    """Training and clipping are exact. Noise is drawn for the widest model and cut by the mask: of the same distribution, but
    other numbers than the narrow model draws by itself, so with noise only the widest model can be compared (below)."""
    masked = in_one_block(federation(images, model, mechanism, **training), widths)
    alone = by_themselves(images, model, widths, mechanism, **training)
    assert masked["test_loss"] == pytest.approx([a["test_loss"] for a in alone], abs=1e-5)
    assert masked["test_error"] == pytest.approx([a["test_error"] for a in alone], abs=1e-6)
    assert np.ptp(masked["test_loss"]) > 1e-3, "the widths must not look alike, else nothing was compared"


@dataclass(frozen=True)
class Shifted:
    """Clip as randomization does, then add the same amount to every number: noise that is the same for models of every size."""

    amount: float
    clipping_norm: float

    def protect(self, upload, values, noise):
        clipped = Randomization(0.0, self.clipping_norm).protect(upload, values | {"sigma": 0 * values["amount"]}, noise)
        return replace(clipped, values=clipped.values + values["amount"][:, None, None])


@pytest.mark.parametrize(("model", "widths"), [MLP, HALF, LENET], ids=["mlp", "one searched, one fixed", "lenet"])
def test_what_protection_adds_to_neurons_that_are_not_there_is_dropped(model, widths, images):
    masked = in_one_block(federation(images, model, Shifted(0.05, 0.5)), widths)
    alone = by_themselves(images, model, widths, Shifted(0.05, 0.5))
    assert masked["test_loss"] == pytest.approx([a["test_loss"] for a in alone], abs=1e-5)
    bare = in_one_block(federation(images, model, Shifted(0.0, 0.5)), widths)
    assert np.abs(bare["test_loss"] - masked["test_loss"]).min() > 1e-3, "what is added must matter, else nothing was compared"


def test_lenet5_searches_its_widths_as_lenet_does(images):
    model = Lenet5((Integer("channels_1", 1, 4), 4), (8, Integer("neurons_2", 2, 8)))
    widths = [{"channels_1": 1, "neurons_2": 8}, {"channels_1": 4, "neurons_2": 2}]
    masked = in_one_block(federation(images, model, TIGHT), widths)
    alone = by_themselves(images, model, widths, TIGHT)
    assert masked["test_loss"] == pytest.approx([a["test_loss"] for a in alone], abs=1e-5)
    assert masked["upload_bytes"] == pytest.approx([a["upload_bytes"] for a in alone])


@pytest.mark.parametrize(("model", "widths"), [MLP, HALF, LENET], ids=["mlp", "one searched, one fixed", "lenet"])
def test_with_noise_the_widest_model_trains_as_by_itself(model, widths, images):
    masked = in_one_block(federation(images, model, NOISY), widths)
    assert masked["test_loss"][-1] == pytest.approx(by_themselves(images, model, widths[-1:], NOISY)[0]["test_loss"], abs=1e-5)


@pytest.mark.parametrize(("mechanism", "exact"), [(BARE, [0, 1]), (TIGHT, [0, 1]), (NOISY, [1])], ids=["bare", "clipped", "noisy"])
def test_a_narrow_model_trains_as_the_one_by_hand(mechanism, exact, images):
    widest, small = Mlp((16, 12)), Mlp((3, 7))
    training = Training(learning_rate=0.3, local_steps=4, batch_size=4)
    columns = {"learning_rate": 0.3, "sigma": mechanism.sigma, "clipping_norm": mechanism.clipping_norm, "rounds": ROUNDS,
               "sample_ratio": 1.0}
    trace = train([Setup(Data(images, CLIENTS), widest, training, mechanism, seed=3)],
                  {name: torch.tensor([v, v]) for name, v in columns.items()}, [small, widest], CLIENTS)
    for r in exact:  # noise is the widest model's
        setup = Setup(Data(images, CLIENTS), (small, widest)[r], training, mechanism, seed=3)
        _, losses, _ = by_hand.train(setup, 0.3, 1.0, mechanism.sigma, mechanism.clipping_norm, ROUNDS)
        assert trace.figures["loss"][r] == pytest.approx(losses, abs=1e-5)


@pytest.mark.parametrize("mechanism", [TIGHT, NOISY], ids=["clipped", "clipped and noisy"])
@pytest.mark.parametrize(("model", "widths"), [MLP, LENET], ids=["mlp", "lenet"])
def test_a_width_does_not_depend_on_the_widths_beside_it(model, widths, mechanism, images):
    problem = federation(images, model, mechanism)
    masked = in_one_block(problem, widths)
    for i, width in enumerate(widths):
        alone = in_one_block(problem, [width])
        assert {name: column[0] for name, column in alone.items() if name != "diverged_round"} == {
            name: column[i] for name, column in masked.items() if name != "diverged_round"}


@pytest.mark.parametrize(("model", "widths"), [MLP, HALF, LENET], ids=["mlp", "one searched, one fixed", "lenet"])
def test_what_is_sent_and_what_leaks_is_the_narrow_models(model, widths, images):
    masked = in_one_block(federation(images, model, NOISY), widths)
    parameters = np.array([size_of(narrow(model, width), (1, 16, 16), 4)[0] for width in widths])
    assert len(set(parameters)) == len(widths)
    assert masked["upload_bytes"] == pytest.approx(parameters * 4 * CLIENTS * ROUNDS)
    assert masked["kang23_eq13"] == pytest.approx(kang23_eq13(0.02, 0.5, parameters))
    assert masked["kang23_eq13"] == pytest.approx(1 - (0.02 / 0.5) ** 2 * np.sqrt(parameters))


def test_the_parameters_of_a_trace_are_those_of_each_narrow_model(images):
    model, widths = LENET
    models = [narrow(model, width) for width in widths]
    setup = Setup(Data(images, CLIENTS), models[-1], Training(learning_rate=0.1, local_steps=1, batch_size=4), NOISY, seed=0)
    columns = {"learning_rate": 0.1, "sigma": 0.02, "clipping_norm": 0.5, "rounds": 1, "sample_ratio": 1.0}
    trace = train([setup], {name: torch.tensor([v] * 4) for name, v in columns.items()}, models, CLIENTS)
    assert list(trace.parameters) == [sum(p.numel() for p in m.build((1, 16, 16), 4).parameters()) for m in models]


STUDY = """\
budget = 4

[data]
clients = 4

[model]
name = "mlp"
hidden = {hidden}

[training]
rounds = 1
local_steps = 2
batch_size = 8
learning_rate = 0.1

[mechanism]
name = "randomization"
sigma = 0.01

[objectives.test_error]

[objectives.bytes]
measure = "upload_bytes"
reference = 100_000

[optimizer]
name = "random"
"""


@pytest.fixture
def study(tmp_path):
    """Write a study with this list of hidden layers."""
    def write(hidden: str) -> Path:
        path = tmp_path / "widths.toml"
        path.write_text(STUDY.replace("{hidden}", hidden), encoding="utf-8")
        return path

    return write


def test_a_study_file_searches_the_widths_that_are_ranges_and_keeps_the_others(study):
    problem = load_study(study("[[1, 16], 8]")).problem
    assert problem.model == Mlp((Integer("hidden_1", 1, 16), 8))
    assert problem.space.names == ("hidden_1",)
    assert problem.widest == Mlp((16, 8))
    measured = problem.measure({"hidden_1": [1, 16]}, [0, 0])
    assert list(measured["upload_bytes"]) == [4 * 4 * (65 * h + 8 * (h + 1) + 90) for h in (1, 16)]


def test_a_study_file_may_write_a_width_as_a_log_range_or_as_choices(study):
    problem = load_study(study("[{ low = 1, high = 64, log = true }, { choices = [4, 32, 8] }]")).problem
    assert problem.model == Mlp((Integer("hidden_1", 1, 64, log=True), Choice("hidden_2", (4, 32, 8))))
    assert problem.widest == Mlp((64, 32))


@pytest.mark.parametrize(("hidden", "fault"), [
    ("[[0, 16], 8]", "model.hidden: hidden_1: must be at least 1, found 0."),
    ("[[16, 1], 8]", "model.hidden: hidden_1: a range must have low < high, found [16, 1]."),
    ("[[1, 2, 3], 8]", "model.hidden: hidden_1: must be a whole number or a range written as [low, high], "
                       "{low = ..., high = ..., log = true} or {choices = [...]}, found [1, 2, 3]."),
    ("[8, [1.5, 3]]", "model.hidden: hidden_2: must be a whole number, found 1.5."),
    ("[8, [1, 70000]]", "model.hidden: hidden_2: must be at most 65536, found 70000."),
    ("16", "model.hidden: must be a list of whole numbers, found 16."),
])
def test_a_width_that_cannot_be_is_a_fault_of_the_study_file(hidden, fault, study):
    with pytest.raises(StudyError) as refused:
        load_study(study(hidden))
    assert str(refused.value) == f"{study(hidden)}: line 8, {fault}"


def test_a_study_of_widths_runs_to_its_front(study, fedpareto):
    ended = fedpareto("run", study("[[1, 16], 8]"))
    assert ended.status == 0, ended.err
    assert "hidden_1" in ended.out


@dataclass(frozen=True)
class Gates:
    """A hidden layer of sigmoids: a neuron that is not there must not fire, although sigmoid(0) is not 0."""

    width: Whole = 4

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(256, self.width), nn.Sigmoid(), nn.Linear(self.width, classes))


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="neurons that are not there train in local steps and count in clipping")
def test_neurons_that_are_not_there_stay_silent_under_any_activation(images):
    masked = federation(images, Gates(Integer("width", 1, 16)), TIGHT).measure({"width": [2, 5]}, [3, 3])
    alone = [federation(images, Gates(w), TIGHT, block=1).measure({}, [3])["test_loss"][0] for w in (2, 5)]
    assert masked["test_loss"] == pytest.approx(alone, abs=1e-5)


@dataclass(frozen=True)
class Own:
    """A model of the user's own with a width to search."""

    between: str = "relu"
    hidden: Whole = 8

    def build(self, shape, classes):
        middle = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "norm": nn.LayerNorm(self.hidden)}[self.between]
        last = nn.Linear(self.hidden, classes)
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], self.hidden), middle, last)


@pytest.mark.parametrize("between", ["relu", "tanh"])
@pytest.mark.parametrize("local", [None, DpSgd(0.0, 0.3)], ids=["plain", "records clipped"])
def test_widths_of_a_model_of_ones_own_train_as_the_narrow_models_themselves(images, between, local):
    searched = federation(images, Own(between, Integer("hidden", 2, 12)), BARE)
    hidden = {} if local is None else {"local": local}
    searched = replace(searched, **hidden)
    searched.check()
    together = in_one_block(searched, [{"hidden": h} for h in (2, 7, 12)])
    alone = [replace(federation(images, Own(between, h), BARE, block=1), **hidden).measure({}, [3]) for h in (2, 7, 12)]
    assert together["test_loss"] == pytest.approx([a["test_loss"][0] for a in alone], abs=1e-5)


@pytest.mark.parametrize(("between", "found"), [("sigmoid", "gradients of neurons that are not there"), ("norm", "other scores of the narrowest model"),
                                                ("twice", "4 parameters of the narrowest and 6 of the widest")])
def test_a_model_of_ones_own_that_a_mask_does_not_make_narrow_is_refused(images, between, found):
    kind = Deeper if between == "twice" else Own
    with pytest.raises(ModelError, match=f"must be the first places of its widest form where widths are searched, found {found}"):
        federation(images, kind(between, Integer("hidden", 2, 12)), BARE).check()


@dataclass(frozen=True)
class Deeper:
    """A model that has another layer where it is wide."""

    between: str = ""
    hidden: Whole = 8

    def build(self, shape, classes):
        more = [nn.Linear(classes, classes)] if self.hidden > 8 else []
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[-1] * shape[-2], self.hidden), nn.ReLU(), nn.Linear(self.hidden, classes), *more)
