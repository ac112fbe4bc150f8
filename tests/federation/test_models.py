"""Every model of the papers, trained as a stack, against FedAvg written by hand; and how many parameters each has."""

from __future__ import annotations

import fedavg_by_hand as by_hand
import numpy as np
import pytest
import torch
from trained import train

from fedpareto.contract import cohort
from fedpareto.errors import ModelError, SettingError
from fedpareto.federation.data import Data
from fedpareto.federation.models import MODELS, Cnn, Lenet, Lenet5, Lr, Mlp, Resnet18, Vgg
from fedpareto.federation.setup import Setup, seeded
from fedpareto.federation.sizes import size_of
from fedpareto.federation.stack import stack
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Randomization

CLASSES, ROUNDS = 4, 3
GREY, COLOUR, SMALL = (1, 28, 28), (3, 32, 32), (3, 8, 8)
SHAPES = {"lr": GREY, "mlp": GREY, "lenet5": GREY, "lenet": COLOUR, "cnn": GREY, "vgg": (3, 16, 16), "resnet18": SMALL}
# Learning rates of the two settings; noise and clipping norm of the first. Gentle where models are deep: among a million
# activations one lies within a rounding of a kink, and what its gradient then does to the loss must stay below the tolerance.
RATES = {"lr": (0.1, 0.03), "mlp": (0.1, 0.03), "lenet5": (0.6, 0.2), "lenet": (0.3, 0.1), "cnn": (0.1, 0.03), "vgg": (0.001, 0.0003),
         "resnet18": (0.0003, 0.0001)}
SIGMA = {"lr": 0.01, "mlp": 0.01, "lenet5": 0.01, "lenet": 0.005, "cnn": 0.005, "vgg": 0.001, "resnet18": 0.0002}
CLIP = {"vgg": 0.03, "resnet18": 0.02}


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """The path of 60 training and 20 test images of a shape, in classes that differ in brightness."""
    def write(shape: tuple[int, ...]) -> str:
        path = tmp_path_factory.getbasetemp() / f"images-{'x'.join(map(str, shape))}.npz"
        if not path.exists():
            draw, arrays = np.random.default_rng(5), {}
            for part, n in (("train", 60), ("test", 20)):
                y = np.arange(n) % CLASSES
                x = draw.integers(0, 120, (n, *shape)) + 40 * y.reshape(-1, *[1] * len(shape))
                arrays |= {f"x_{part}": x.astype(np.uint8), f"y_{part}": y}
            np.savez(path, **arrays)
        return str(path)

    return write


@pytest.mark.parametrize(("name", "split", "sample_ratio"), [
    pytest.param(name, split, ratio, marks=[pytest.mark.slow] if name == "resnet18" and (split, ratio) != ("iid", 0.67) else [])
    for name in MODELS for split in ("iid", "dirichlet") for ratio in (1.0, 0.67)])
def test_a_stacked_federation_equals_the_one_by_hand_for_every_model(name, split, sample_ratio, made_up, monkeypatch):
    clients = 2 if name == "resnet18" else 3  # 11 million parameters each
    where = Data(made_up(SHAPES[name]), clients, split=split, alpha=1.0)
    setup = Setup(where, MODELS[name](), Training(learning_rate=0.1, local_steps=2, batch_size=4), Randomization(0.1), seed=7)
    assert (np.ptp(setup.train_split().sizes) > 0) == (split == "dirichlet"), "uneven shares must weigh what clients send"
    settings = {"learning_rate": RATES[name], "sigma": (SIGMA[name], 0.0), "clipping_norm": (CLIP.get(name, 0.3), 1e9)}
    values = settings | {"rounds": [ROUNDS] * 2, "sample_ratio": [sample_ratio] * 2}
    columns = {key: torch.tensor(column) for key, column in values.items()}
    trace = train([setup], columns, [setup.model] * 2, cohort(sample_ratio, clients))
    norm = torch.Tensor.norm  # by hand it is a float32 sum, which falls short for millions of numbers
    monkeypatch.setattr(torch.Tensor, "norm", lambda update: norm(update.double()).float())
    for r, (rate, sigma, clip) in enumerate(zip(*settings.values(), strict=True)):
        _, losses, errors = by_hand.train(setup, rate, sample_ratio, sigma, clip, ROUNDS)
        assert trace.figures["loss"][r] == pytest.approx(losses, abs=1e-4)
        assert trace.figures["error"][r] == pytest.approx(errors, abs=1e-6)
    assert np.abs(np.diff(trace.figures["loss"], axis=0)).max() > 1e-3, "the two settings must not look alike, else nothing was compared"
    assert np.abs(np.diff(trace.figures["loss"], axis=1)).max() > 1e-3, "a round must move the model, else nothing was compared"


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_grouped(name):
    assert stack(MODELS[name]().build(SHAPES[name], CLASSES), SHAPES[name], CLASSES).fast is not None


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_of_every_model_has_a_say(name):
    module = seeded(lambda: MODELS[name]().build(SHAPES[name], CLASSES), seed=0)
    x = torch.rand(4, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    torch.nn.functional.cross_entropy(module(x), torch.arange(4)).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())


def block(fan_in: int, fan_out: int, shortcut: bool) -> int:
    """Two 3×3 convolutions without bias, two group norms, and a 1×1 convolution where the shortcut needs one."""
    return 9 * fan_in * fan_out + 9 * fan_out * fan_out + 4 * fan_out + (fan_in * fan_out if shortcut else 0)


@pytest.mark.parametrize(("model", "shape", "parameters"), [
    (Lr(), GREY, 7_850),
    (Mlp(), GREY, 269_322),  # Kang 2023: 256 and 256
    (Lenet5(), GREY, 61_706),
    (Lenet(), COLOUR, 148_394),
    (Cnn(), GREY, 32 * 10 + 64 * (9 * 32 + 1) + 128 * (64 * 7 * 7 + 1) + 10 * 129),
    (Vgg(), COLOUR, sum(block(a, b, True) for a, b in ((3, 32), (32, 64), (64, 128), (128, 256))) + 257 * 128 + 129 * 10),
    # Resnet-18 of He 2016 for small images has 11,173,962; its three shortcuts are normed there and are not here
    (Resnet18(), COLOUR, 11_173_962 - 2 * (128 + 256 + 512)),
])
def test_every_model_has_the_parameters_it_should_for_ten_classes(model, shape, parameters):
    assert sum(p.numel() for p in model.build(shape, 10).parameters()) == parameters
    assert size_of(model, shape, 10)[0] == parameters
    assert model.build(shape, 10)(torch.rand(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("name", ["cnn", "lenet", "lenet5", "resnet18", "vgg"])
def test_a_convolutional_model_refuses_inputs_that_are_not_images(name):
    with pytest.raises(ModelError, match=r"images \[channels, height, width\], found .*shape \[64\]\.$"):
        MODELS[name]().build((64,), 10)


@pytest.mark.parametrize(("model", "size"), [(Lenet(), 15), (Lenet5(), 11), (Lenet(), 2)])
def test_a_convolutional_model_refuses_images_of_which_nothing_is_left(model, size):
    with pytest.raises(ModelError, match=rf"must have larger images, found {size}×{size}: nothing is left after its convolutions\.$"):
        model.build((1, size, size), 10)


@pytest.mark.parametrize("shape", [(1, 3, 3), (1, 3, 8), (3, 8, 1)])
def test_cnn_refuses_images_of_which_nothing_is_left(shape):
    with pytest.raises(ModelError, match=rf"^cnn: images must be at least 4×4, found {shape[1]}×{shape[2]}\.$"):
        Cnn().build(shape, 10)


@pytest.mark.parametrize(("model", "size"), [(Lenet(), 16), (Lenet5(), 12), (Cnn(), 4), (Vgg(), 1), (Resnet18(), 1)])
def test_a_convolutional_model_takes_the_smallest_images_of_which_something_is_left(model, size):
    assert model.build((1, size, size), 10)(torch.rand(2, 1, size, size)).shape == (2, 10)


def test_an_mlp_without_layers_and_a_lenet_with_three_are_refused():
    with pytest.raises(SettingError, match=r'^hidden: must list at least one layer, found \[\]\. For none, use the model "lr"\.$'):
        Mlp(())
    for make in (Lenet, Lenet5):
        with pytest.raises(SettingError, match=r"^channels: must list two layers, found 3\.$"):
            make(channels=(4, 4, 4))
        with pytest.raises(SettingError, match=r"^neurons: must list two layers, found 1\.$"):
            make(neurons=(4,))
