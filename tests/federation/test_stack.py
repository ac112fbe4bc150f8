"""Any module as a stack of models: grouped where that is exact, by vmap where it is not, refused where neither is."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fedavg_by_hand as by_hand
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from trained import train

from fedpareto.errors import ModelError
from fedpareto.federation.data import Data
from fedpareto.federation.setup import Setup, seeded
from fedpareto.federation.stack import Stack, stack
from fedpareto.federation.steps import Images, LocalSteps, Recipe
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Randomization

SHAPE, CLASSES = (1, 8, 8), 10  # the digits
M, R, B = 3, 2, 4
RATE = torch.tensor([0.1, 0.3])


class Net(nn.Module):
    """A module of these layers whose forward pass is a function of itself and x."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.run = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def two_layers(between: Callable[[Tensor], Tensor], wider: int = 8) -> nn.Module:
    """Return linear layers 64 → 8 and wider → 10 with something between them."""
    return Net(lambda net, x: net.b(between(net.a(x.flatten(1)))), a=nn.Linear(64, 8), b=nn.Linear(wider, CLASSES))


def residual(net: nn.Module, x: Tensor) -> Tensor:
    h = F.relu(net.a(x))
    return net.c(F.relu(h + net.b(h)).flatten(1))


def convolutions(*layers: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *layers, nn.Flatten(), nn.Linear(features, CLASSES))


GROUPED: dict[str, Callable[[], nn.Module]] = {
    "one linear layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES)),
    "residual sums": lambda: Net(residual, a=nn.Conv2d(1, 4, 3, padding=1), b=nn.Conv2d(4, 4, 3, padding=1), c=nn.Linear(256, CLASSES)),
    "F.relu and x.flatten(1)": lambda: two_layers(F.relu),
    "x.view(len(x), -1)": lambda: Net(lambda net, x: net.b(net.a(x).view(len(x), -1)), a=nn.Conv2d(1, 4, 3), b=nn.Linear(144, CLASSES)),
    "x.mean((2, 3))": lambda: Net(lambda net, x: net.b(net.a(x).mean((2, 3))), a=nn.Conv2d(1, 4, 3), b=nn.Linear(4, CLASSES)),
    "max pooling": lambda: convolutions(nn.ReLU(), nn.MaxPool2d(2), features=128),
    "average pooling": lambda: convolutions(nn.Tanh(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), features=8),
    "group norm": lambda: convolutions(nn.GroupNorm(2, 8), nn.Tanh(), nn.GroupNorm(4, 8, affine=False), features=512),
    "grouped convolutions": lambda: convolutions(nn.ReLU(), nn.Conv2d(8, 6, 3, groups=2), nn.ReLU(), features=216),
    "depthwise convolutions": lambda: convolutions(nn.ReLU(), nn.Conv2d(8, 16, 3, groups=8), nn.Conv2d(16, 4, 1), features=144),
    "strides and dilation": lambda: convolutions(nn.Conv2d(8, 4, 3, stride=2, dilation=2, padding=2), nn.ReLU(), features=64),
    "layers without bias": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8, bias=False),
                                                 nn.ReLU(), nn.Linear(8, CLASSES, bias=False)),
    "in-place activations after convolutions": lambda: convolutions(nn.ReLU(inplace=True), features=512),
    "more outputs than classes": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES + 3)),
    "a layer that is not used": lambda: Net(lambda net, x: net.a(x.flatten(1)), a=nn.Linear(64, CLASSES), b=nn.Linear(3, 3)),
    "a convolution used twice": lambda: Net(lambda net, x: net.c(net.b(net.b(net.a(x)).relu()).flatten(1)), a=nn.Conv2d(1, 4, 3),
                                            b=nn.Conv2d(4, 4, 3, padding=1), c=nn.Linear(144, CLASSES)),
}
VMAPPED: dict[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, CLASSES)),
    "softmax over channels": lambda: two_layers(lambda h: h.softmax(1)),
    "x.view(-1, 64)": lambda: Net(lambda net, x: net.b(net.a(x.view(-1, 64)).relu()), a=nn.Linear(64, 8), b=nn.Linear(8, CLASSES)),
    "channels side by side": lambda: two_layers(lambda h: torch.cat([h, h.relu()], 1), wider=16),
    "some of the channels": lambda: two_layers(lambda h: h[:, :5], wider=5),
    "a mean over channels": lambda: two_layers(lambda h: h - h.mean(1, keepdim=True)),
    "a parameter of its own": lambda: Net(lambda net, x: net.a(x.flatten(1)) * net.scale, a=nn.Linear(64, CLASSES),
                                          scale=nn.Parameter(torch.linspace(0.5, 2, CLASSES))),
    "a layer without a grouped form": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.PReLU(), nn.Linear(8, CLASSES)),
    "padding of another kind": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect"), nn.Tanh(), nn.Flatten(),
                                                     nn.Linear(256, CLASSES)),
    "padding by name": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding="same"), nn.Tanh(), nn.Flatten(), nn.Linear(256, CLASSES)),
    "norm of the inputs": lambda: nn.Sequential(nn.GroupNorm(1, 1), nn.Flatten(), nn.Linear(64, CLASSES)),
    "attention": lambda: Net(lambda net, x: net.b(net.a(*[x.flatten(1, 2)] * 3)[0].flatten(1)),
                             a=nn.MultiheadAttention(8, 2, batch_first=True), b=nn.Linear(64, CLASSES)),
}
BOTH = GROUPED | VMAPPED


def models_around(module: nn.Module) -> list[Tensor]:
    """Return parameters [M,R,...] that differ from the module's own and from one another."""
    draw = torch.Generator().manual_seed(2)
    return [p.detach() + 0.1 * torch.randn(M, R, *p.shape, generator=draw) for p in module.parameters()]


def images() -> Images:
    return Images(torch.rand(20, *SHAPE, generator=torch.Generator().manual_seed(3)), torch.arange(20) % CLASSES, 1.0, 0.0)


def picked(steps: int, padded: bool) -> Tensor:
    """Return images [steps,B,M]; if padded, one slot has a short batch and another has no batch in the last step."""
    picks = torch.randint(0, 20, (steps, B, M), generator=torch.Generator().manual_seed(5))
    if padded:
        picks[0, 2:, 1] = -1
        picks[-1, :, 2] = -1
    return picks


def alone(module: nn.Module, start: list[Tensor], picks: Tensor, momentum: float) -> Tensor:
    """Return the updates [M,R,P] of every model trained by itself with torch.optim.SGD."""
    seen, out = images(), []
    for m in range(M):
        for r in range(R):
            one = copy.deepcopy(module)
            nn.utils.vector_to_parameters(torch.cat([s[m, r].flatten() for s in start]), one.parameters())
            before = nn.utils.parameters_to_vector(one.parameters()).detach().clone()
            sgd = torch.optim.SGD(one.parameters(), lr=float(RATE[r]), momentum=momentum)
            for pick in picks[:, :, m]:
                kept = pick[pick >= 0]
                if len(kept):
                    sgd.zero_grad()
                    F.cross_entropy(one(seen.x[kept]), seen.y[kept]).backward()
                    sgd.step()
            out.append(nn.utils.parameters_to_vector(one.parameters()).detach() - before)
    return torch.stack(out).view(M, R, -1)


def together(made: Stack, start: list[Tensor], picks: Tensor, momentum: float) -> Tensor:
    """Return the updates [M,R,P] of all models trained as one stack."""
    return LocalSteps(Recipe(made, momentum), images(), M, R, picks).run(start, picks, RATE)


def gap(module: nn.Module, steps: int, momentum: float, padded: bool) -> float:
    """Return the largest difference between stacked training and SGD on each model alone, for updates that are not small."""
    made, start, picks = stack(module, SHAPE, CLASSES), models_around(module), picked(steps, padded)
    expected = alone(module, start, picks, momentum)
    assert expected.abs().amax(2).min() > (-1 if padded else 1e-3), "every model must move, else nothing was compared"
    return float((together(made, start, picks, momentum) - expected).abs().max())


@pytest.mark.parametrize("name", BOTH)
def test_a_stack_scores_as_separate_models_do(name):
    module = seeded(BOTH[name], 4)
    made, params, x = stack(module, SHAPE, CLASSES), models_around(module), images().x[: B * M].view(B, M, *SHAPE)
    scores = made.scores(params, x).detach()  # [M,R,C,B]
    names = [name for name, _ in module.named_parameters()]
    for m in range(M):
        for r in range(R):
            one = functional_call(module, {n: p[m, r] for n, p in zip(names, params, strict=True)}, (x[:, m],))
            torch.testing.assert_close(scores[m, r], one.detach().t(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GROUPED)
def test_a_module_that_groups_takes_the_fast_path(name):
    assert stack(seeded(GROUPED[name], 4), SHAPE, CLASSES).fast is not None


@pytest.mark.parametrize("name", VMAPPED)
def test_a_module_that_does_not_group_falls_back_on_vmap(name):
    assert stack(seeded(VMAPPED[name], 4), SHAPE, CLASSES).fast is None


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", BOTH)
def test_one_step_of_a_stack_is_one_step_of_sgd_on_each_model(name, momentum, padded):
    assert gap(seeded(BOTH[name], 4), 1, momentum, padded) < 1e-6


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["one linear layer", "residual sums", "average pooling", "layers without bias", "layer norm"])
def test_steps_of_a_stack_with_short_and_missing_batches_are_those_of_sgd(name, momentum):
    assert gap(seeded(BOTH[name], 4), 4, momentum, padded=True) < 1e-5


def test_a_stack_can_train_again_and_starts_from_where_it_is_told():
    module = seeded(GROUPED["residual sums"], 4)
    made, start, picks = stack(module, SHAPE, CLASSES), models_around(module), picked(3, padded=True)
    steps = LocalSteps(Recipe(made, 0.9), images(), M, R, picks)
    first = steps.run(start, picks, RATE)
    steps.run([2 * s for s in start], picks.flip(0), 3 * RATE)
    assert torch.equal(steps.run(start, picks, RATE), first)


@dataclass(frozen=True)
class Ready:
    """A model that is a module named above."""

    name: str

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return BOTH[self.name]()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", ["layer norm", "softmax over channels", "x.view(-1, 64)", "residual sums", "depthwise convolutions"])
def test_a_federation_of_any_module_equals_the_one_by_hand(name, momentum):
    training = Training(learning_rate=0.1, local_steps=3, batch_size=8, momentum=momentum)
    setup = Setup(Data("digits", 4), Ready(name), training, Randomization(0.1), seed=1)
    settings = {"learning_rate": (0.3, 0.1), "sigma": (0.01, 0.0), "clipping_norm": (0.5, 1e9)}
    columns = {key: torch.tensor(v) for key, v in (settings | {"rounds": (3, 3), "sample_ratio": (0.75, 0.75)}).items()}
    trace = train([setup], columns, [setup.model] * 2, slots=3)
    for r, (rate, sigma, clip) in enumerate(zip(*settings.values(), strict=True)):
        _, losses, _ = by_hand.train(setup, rate, 0.75, sigma, clip, 3)
        assert trace.figures["loss"][r] == pytest.approx(losses, abs=1e-5)
        assert abs(losses[0] - losses[-1]) > 1e-3, "training must move the model, else nothing was compared"


# What cannot be stacked: each is refused with what must hold, what was found, and what to do.

REFUSED = {
    "batch norm": (lambda: convolutions(nn.BatchNorm2d(8), features=512),
                   r"the model's layer '1' must not keep batch statistics, which do not federate, found BatchNorm2d\. Use nn\.GroupNorm\."),
    "dropout": (lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, CLASSES)),
                r"the model's layer '1' must not draw random numbers, found Dropout\. Take it out, or set its p to 0\."),
    "dropout of channels": (lambda: nn.Sequential(nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(64, CLASSES)),
                            r"the model's layer '0' must not draw random numbers, found Dropout2d\. Take it out"),
    "random numbers": (lambda: two_layers(lambda h: F.dropout(h, 0.5)),
                       r"the model .*random numbers"),
    "a branch on what a layer gives": (lambda: two_layers(lambda h: h.relu() if h.mean() > 0 else h),
                                       r"the model cannot be stacked: its forward pass must be tensor operations alone, without random "
                                       r"numbers, state or branches that depend on data, found: RuntimeError: "
                                       r".*data-dependent control flow"),
    "inputs of another shape": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(100, CLASSES)),
                                r"the model must take inputs of shape \[1, 8, 8\], found: RuntimeError: .*\(4x64 and 100x10\)\. "
                                r"Build it for these inputs, or choose other data\.$"),
    "inputs of another rank": (lambda: nn.Sequential(nn.Flatten(), nn.Conv2d(1, 4, 3)),
                               r"the model must take inputs of shape \[1, 8, 8\], found: RuntimeError: "),
    "too few outputs": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9)),
                        r"the model must give scores for 10 classes, found 9\. Widen its last layer\.$"),
    "maps for scores": (lambda: nn.Conv2d(1, CLASSES, 3),
                        r"the model must give a tensor of scores \[batch, classes\], found \[4, 10, 6, 6\] for a batch of 4\.$"),
    "one number for scores": (lambda: Net(lambda net, x: net.a(x.flatten(1))[:, 0], a=nn.Linear(64, CLASSES)),
                              r"the model must give a tensor of scores \[batch, classes\], found \[4\] for a batch of 4\.$"),
    "a tuple for scores": (lambda: Net(lambda net, x: (net.a(x.flatten(1)), 1), a=nn.Linear(64, CLASSES)),
                           r"the model must give a tensor of scores \[batch, classes\], found tuple for a batch of 4\.$"),
    "a table for scores": (lambda: Net(lambda net, x: {"logits": net.a(x.flatten(1))}, a=nn.Linear(64, CLASSES)),
                           r"the model must give a tensor of scores \[batch, classes\], found dict for a batch of 4\.$"),
    "one row for the batch": (lambda: Net(lambda net, x: net.a(x.flatten(1)).mean(0, keepdim=True), a=nn.Linear(64, CLASSES)),
                              r"the model must give a tensor of scores \[batch, classes\], found \[1, 10\] for a batch of 4\.$"),
    "batch statistics by hand": (lambda: two_layers(lambda h: h - h.mean(0)),
                                 r"the model must score each input by itself and always the same, found that an input's scores depend on "
                                 r"its batch or change .* for batch statistics, use nn\.GroupNorm\.$"),
    "frozen parameters": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, CLASSES)),
                          r"the model's parameters must all be trained, found '1\.weight' frozen\. Make it a buffer, or let it train\.$"),
}


class Counting(nn.Module):
    """A module that remembers how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.asked = nn.Linear(64, CLASSES), 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        return self.layer(x.flatten(1)) * self.asked


REFUSED["state"] = (Counting, r"the model .*\bstate\b")

# Known faults are strict, so that a mended one must lose its mark.
NOT_RAISED = pytest.fail.Exception


def fault(raises: type[BaseException], why: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, raises=raises, reason=why)




@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stacked_is_refused_with_the_reason(name):
    make, message = REFUSED[name]
    with pytest.raises(ModelError, match=f"^{message}"):
        stack(seeded(make, 4), SHAPE, CLASSES)


@pytest.mark.parametrize("name", ["random numbers", "state"])
def test_random_numbers_and_state_are_refused_at_least(name):
    with pytest.raises(ModelError):
        stack(seeded(REFUSED[name][0], 4), SHAPE, CLASSES)


def test_what_must_not_be_trained_may_be_a_buffer():
    def make() -> nn.Module:
        module = two_layers(F.relu)
        module.register_buffer("fixed", torch.linspace(-1, 1, 64))
        module.run = lambda net, x: net.b(F.relu(net.a(x.flatten(1) * net.fixed)))
        return module

    assert gap(seeded(make, 4), 1, 0.0, padded=False) < 1e-6


def test_dropout_that_drops_nothing_is_allowed():
    assert stack(nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(64, CLASSES)), SHAPE, CLASSES).size == 650


# A user's own module, in a study file.

MODULES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a, self.b = nn.Linear(64, width), nn.Linear(width, 10)

    def forward(self, x):
        return self.b(torch.relu(self.a(x.flatten(1))))

class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Linear(64, 10), nn.BatchNorm1d(10)

    def forward(self, x):
        return self.norm(self.a(x.flatten(1)))

class Listed(Net):
    def __init__(self, widths):
        super().__init__(widths[0])

def net(width):
    return Net(width)

def rows():
    x, y = torch.rand(40, 64, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 10
    return x.numpy(), y.numpy(), x.numpy(), y.numpy()
"""


@pytest.fixture
def study_with(tmp_path, study_text, monkeypatch):
    """Write a study file for this model, with a module of the user's own beside it; the work is done in another folder."""
    beside, elsewhere = tmp_path / "beside", tmp_path / "elsewhere"
    beside.mkdir()
    elsewhere.mkdir()
    (beside / "mymodels.py").write_text(MODULES, encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    monkeypatch.delitem(sys.modules, "mymodels", raising=False)

    def write(model: str, data: str = "digits") -> Path:
        path = beside / "study.toml"
        path.write_text(study_text.replace('name = "lr"', model).replace('name = "digits"', f'name = "{data}"'), encoding="utf-8")
        return path

    return write


@pytest.fixture
def own(study_with, fedpareto):
    """Run a study file with this model, in this process."""
    return lambda model, **data: fedpareto("run", study_with(model, **data))


def test_a_study_may_name_a_module_of_the_users_own_beside_it(study_with):
    words = [sys.executable, "-m", "fedpareto", "run", str(study_with('name = "mymodels:Net"\nwidth = 8')), "--json"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    front = json.loads(ended.stdout)
    parameters = 64 * 8 + 8 + 8 * 10 + 10
    assert front["evaluations"] == 2
    assert front["points"][0]["measures"]["upload_bytes"] == 4 * 4 * parameters  # four clients, four bytes a number


@pytest.mark.parametrize(("name", "found"), [
    ("mymodelz:Net", "ModuleNotFoundError: No module named 'mymodelz'"),
    ("mymodels:Nett", "AttributeError: module 'mymodels' has no attribute 'Nett'"),
])
def test_a_module_that_cannot_be_imported_is_one_clear_error(own, name, found):
    ended = own(f'name = "{name}"')
    assert ended.status == 2
    assert ended.err.endswith(f"study.toml: line 10, model.name: '{name}' must be importable, found {found}. Install the package that "
                                 "holds it, or put the module beside the study file.\n")
    assert ended.err.startswith("error: ")


def test_a_module_that_cannot_federate_is_one_clear_error_before_anything_runs(own, tmp_path):
    ended = own('name = "mymodels:Normed"')
    assert ended.status == 2
    assert ended.err == ("error: the model's layer 'norm' must not keep batch statistics, which do not federate, found BatchNorm1d. "
                            "Use nn.GroupNorm.\n")
    assert not list(tmp_path.rglob("*.db"))


def test_a_study_may_name_a_function_beside_it_for_its_data(own):
    ended = own('name = "lr"', data="mymodels:rows")
    assert ended.status == 0, ended.err


# What is easy to get wrong.


def shared(net: nn.Module, x: Tensor) -> Tensor:
    return net.c(net.b(net.b(net.a(x.flatten(1))).relu()))


@pytest.mark.parametrize("between", [nn.ReLU(inplace=True), F.relu_, lambda h: h.add_(1.0)])
def test_in_place_activations_after_linear_layers_train_as_alone(between):
    assert gap(seeded(lambda: two_layers(between), 4), 1, 0.0, padded=False) < 1e-6


def test_a_linear_layer_used_twice_trains_as_alone():
    make = lambda: Net(shared, a=nn.Linear(64, 8), b=nn.Linear(8, 8), c=nn.Linear(8, CLASSES))  # noqa: E731
    assert gap(seeded(make, 4), 1, 0.0, padded=False) < 1e-6


def test_two_linear_layers_with_one_weight_train_as_alone():
    def make() -> nn.Module:
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, CLASSES))
        module[4].weight = module[2].weight
        return module

    assert gap(seeded(make, 4), 1, 0.0, padded=False) < 1e-6


@pytest.mark.parametrize("mixing", [lambda h: h.softmax(1), lambda h: h.flip(1), lambda h: h - h.mean(1, keepdim=True)])
def test_a_deep_module_that_mixes_channels_early_trains_as_alone(mixing):
    def make() -> nn.Module:
        rest = [layer for _ in range(5) for layer in (nn.Linear(8, 8), nn.ReLU())]
        return Net(lambda net, x: net.b(net.rest(mixing(net.a(x.flatten(1))))), a=nn.Linear(64, 8), rest=nn.Sequential(*rest),
                   b=nn.Linear(8, CLASSES))

    assert gap(seeded(make, 4), 1, 0.0, padded=False) < 1e-6


def test_a_module_may_view_the_rows_of_its_images():
    def make() -> nn.Module:
        return Net(lambda net, x: net.b(net.a(x.view(-1, 8)).view(len(x), -1)), a=nn.Linear(8, 2), b=nn.Linear(16, CLASSES))

    assert gap(seeded(make, 4), 1, 0.0, padded=False) < 1e-6


@fault(NOT_RAISED, "a branch that every trial input takes the same way is not noticed on the fast path")
@pytest.mark.parametrize("between", [lambda h: h.relu() if h.sum() > -1e6 else h, lambda h: h / max(1.0, h.abs().max().item() / 1e6)])
def test_a_branch_that_the_trial_does_not_take_is_refused(between):
    with pytest.raises(ModelError, match="branches that depend on data"):
        stack(seeded(lambda: two_layers(between), 4), SHAPE, CLASSES)


def test_an_output_of_wrong_rank_is_not_told_to_widen_its_last_layer():
    with pytest.raises(ModelError) as refused:
        stack(nn.Conv2d(1, CLASSES, 3), SHAPE, CLASSES)
    assert "Widen" not in str(refused.value)


def test_a_list_may_be_an_argument_of_the_users_own_module(own):
    ended = own('name = "mymodels:Listed"\nwidths = [8, 8]')
    assert ended.status == 0, ended.err


def test_a_key_that_the_users_own_module_does_not_take_is_one_clear_error(own):
    ended = own('name = "mymodels:Net"\nwdth = 8')
    assert ended.status == 2
    assert ended.err.startswith("error: model.name: 'mymodels:Net' must be built by a call with {\"wdth\": 8}, found TypeError: ")
    suggested = " Did you mean 'width'?" if sys.version_info >= (3, 13) else ""
    assert ended.err.endswith(f" unexpected keyword argument 'wdth'.{suggested} Give it the keys it takes.\n")


def test_a_study_may_name_a_function_that_makes_the_module(own):
    ended = own('name = "mymodels:net"\nwidth = 8')
    assert ended.status == 0, ended.err


def test_a_model_is_tried_once_in_a_process(monkeypatch):
    """Trying a large model takes seconds: a study's check and all of its blocks share one verdict."""
    from fedpareto import Federation, Float, Mlp
    from fedpareto.federation import stack as stacks

    calls = []
    once = stacks.stack
    monkeypatch.setattr(stacks, "_tried", {})
    monkeypatch.setattr(stacks, "stack", lambda *given: calls.append(1) or once(*given))
    training = Training(Float("learning_rate", 0.01, 0.1), rounds=1, local_steps=1, batch_size=4)
    problem = Federation(Data("digits", 4), Mlp((5,)), training, Randomization(0.1), (), block=2)
    problem.check()
    problem.measure({"learning_rate": [0.01, 0.02, 0.03, 0.04, 0.05]}, [0] * 5)
    assert len(calls) == 1
