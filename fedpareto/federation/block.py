"""A block: federations that train together, and everything of theirs that no round changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract import Round, expected_cohorts
from fedpareto.federation.judge import Judge
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.losses import loss_of
from fedpareto.federation.models import Model
from fedpareto.federation.setup import Setup, fills_up, room
from fedpareto.federation.split import Split
from fedpareto.federation.stack import (
    Stack,
    embedded,
    linear_weights,
    mask,
    stack_of,
    unflatten,
)
from fedpareto.federation.steps import Images, Recipe
from fedpareto.federation.training import Work
from fedpareto.mechanisms import ThinsOut, thins_out
from fedpareto.noise import stream
from fedpareto.settings import largest, named
from fedpareto.space import FloatArray, Variable

CACHE = 8e6  # bytes of parameters that a processor keeps at hand


@dataclass(frozen=True)
class Block:
    """R settings of each of S repeats, ready to train.

    The federations of a repeat have the same split, clients, mini-batches and noise.
    """

    repeats: tuple[Setup, ...]  # S
    settings: Mapping[str, Tensor]  # name → [R], every number, searched or fixed
    facts: Mapping[str, Tensor]  # name → [R], what a mechanism learns of every round beside them
    terms: Round
    ratios: FloatArray  # [R]
    last_rounds: tuple[int, ...]  # [R]
    works: tuple[Work, ...]  # [R] how much the clients of each train
    recipe: Recipe
    images: Images
    judge: Judge
    splits: tuple[Split, ...]  # S
    slots: int  # clients of the largest round there can be
    device: str
    initial: Tensor  # [S,R,P] the models that training starts from
    parameters: Tensor  # [S,R] how many parameters each model has
    linear: Tensor  # [P] which are weights of fully connected layers
    exists: Tensor | None  # [S,R,P] which parameters there are; None for all
    thin: tuple[Tensor | None, ...]  # the same as [S,1,R,...] each, where a mechanism thins out

    @property
    def stack(self) -> Stack:
        return self.recipe.stack

    @property
    def setup(self) -> Setup:
        """What all repeats share."""
        return self.repeats[0]

    @property
    def federations(self) -> int:
        """R, of each repeat."""
        return len(self.ratios)

    @property
    def rounds(self) -> int:
        """The rounds of the longest run."""
        return max(self.last_rounds)

    def judged_after(self, t: int) -> list[bool]:
        """Say which federations are judged after round t, [R]: all now and then, and who ends."""
        regular = (t + 1) % self.setup.training.evaluate_every == 0
        return [regular or last == t + 1 for last in self.last_rounds]

    @property
    def shared(self) -> bool:
        """Whether the federations of a client slot share its mini-batches, if not their number.

        Sizes from a range never do, whatever the neighbours, so that a row depends on itself alone.
        """
        return not fills_up(self.setup) and len({work.batch_size for work in self.works}) == 1

    @property
    def batch(self) -> int:
        """To how many places mini-batches are filled up."""
        return max(room(self.setup, work.batch_size) for work in self.works)

    @property
    def longest(self) -> Work:
        """The work of whoever trains longest, whose mini-batches begin with those of the others.

        Where records are hidden, it is the longest that can be searched: how wide a step is depends
        on all who take it, and must not depend on neighbours.
        """
        training = self.setup.training
        if isinstance(self.setup.local, ClipsRecords):
            most = (largest(training.local_epochs), largest(training.local_steps))
            return Work(self.works[0].batch_size, *most)
        return max(self.works, key=lambda work: (work.steps, work.epochs))

    def pieces(self) -> list[slice]:
        """Return slots that train together: all on a GPU, else as many as the cache holds."""
        size = self.slots
        if self.device == "cpu":
            each = self.stack.size
            if not self.shared:
                each += self.batch * self.images.x[0].numel()
            size = max(1, int(CACHE / (4 * each * self.federations)))
        bounds = np.linspace(0, self.slots, math.ceil(self.slots / size) + 1).astype(int)
        return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


def prepare(
    repeats: Sequence[Setup],
    settings: Mapping[str, Tensor],
    models: Sequence[Model],
    slots: int,
    device: str = "cpu",
) -> Block:
    """Put federations with these settings, name → [R], onto the device.

    models is each federation's own, [R], all within the widest, that of the setup.
    """
    setup = repeats[0]
    data = setup.data
    made = stack_of(setup.model, setup.module(setup.model), data.shape, data.classes)
    ratios = settings["sample_ratio"].double().numpy()
    terms = terms_of(setup, ratios)
    facts = {name: v.to(device) for name, v in facts_of(setup, terms).items()}
    held = {name: v.to(device) for name, v in settings.items()}
    linear = linear_weights(made.module).to(device)
    connected = _connections(repeats, {**held, **facts}, made, linear)
    exists = _exists(repeats, models, made, connected, device)
    initial = _initial(repeats, models, made).to(device)
    if connected is not None:
        initial = initial * exists
    columns = {name: v.tolist() for name, v in settings.items()}
    momentum = setup.training.momentum
    # noise on every step would move parameters that there are not
    noisy = isinstance(setup.local, ClipsRecords) and not bool(exists.all())
    kept_out = connected is not None or noisy
    recipe = Recipe(
        made,
        None if isinstance(momentum, Variable) else momentum,
        loss_of(setup.training.loss),
        setup.local,
    )
    x = torch.from_numpy(data.x_train).to(device)
    y = torch.from_numpy(data.y_train).to(device)
    tests = [r.test_split() for r in repeats]
    return Block(
        tuple(repeats),
        held,
        facts,
        terms,
        ratios,
        tuple(settings["rounds"].long().tolist()),
        tuple(setup.training.works(columns, len(models))),
        recipe,
        Images(x, y, data.scale, data.shift),
        Judge.of(data, tests, len(models), device, recipe.loss, setup.measures),
        tuple(r.train_split() for r in repeats),
        slots,
        device,
        initial,
        exists.sum(2).double(),
        linear,
        None if bool(exists.all()) else exists.float(),
        _thin(exists, made) if kept_out else (None,) * len(made.initial),
    )


def terms_of(setup: Setup, ratios: FloatArray) -> Round:
    """Return the terms of a round at these sample ratios [R]."""
    training = setup.training
    expected = expected_cohorts(ratios, setup.clients, training.sampling)
    return Round(setup.clients, expected, training.sampling, training.weighting)


def facts_of(setup: Setup, terms: Round) -> dict[str, Tensor]:
    """Return what a mechanism learns of a round beside its settings, name → [R].

    Who is expected, how many one sum may hold, who came, and the seconds that encryption takes.
    """
    held = named(setup.mechanism)
    degree = held.get("degree", 1) if held.get("scheme") == "paillier" else 1
    charged = setup.cost.charged(int(held.get("key_bits", 2048)), int(degree))
    facts = terms.facts() | {name: np.full(len(terms.cohort), v) for name, v in charged.items()}
    return {name: torch.tensor(v, dtype=torch.float32) for name, v in facts.items()}


def _initial(repeats: Sequence[Setup], models: Sequence[Model], made: Stack) -> Tensor:
    """Return the models [S,R,P] that training starts from; equal ones are built once."""
    rows = []
    for repeat in repeats:
        kinds = {m: _flat(embedded(repeat.initial(m), made.initial)) for m in dict.fromkeys(models)}
        rows.append(torch.stack([kinds[m] for m in models]))
    return torch.stack(rows)


def _flat(params: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.flatten() for p in params])


def _exists(
    repeats: Sequence[Setup],
    models: Sequence[Model],
    made: Stack,
    connected: Tensor | None,
    device: str,
) -> Tensor:
    """Return which parameters there are, [S,R,P]: not those beyond a width or not connected."""
    kinds = {m: mask(repeats[0].initial(m), made.initial) for m in dict.fromkeys(models)}
    exists = torch.stack([kinds[m] for m in models]).to(device).expand(len(repeats), -1, -1)
    return exists if connected is None else exists & connected


def _connections(
    repeats: Sequence[Setup], values: Mapping[str, Tensor], made: Stack, linear: Tensor
) -> Tensor | None:
    """Return which parameters the mechanism leaves in the models, [S,R,P], if it thins them out."""
    mechanism = repeats[0].mechanism
    if not (isinstance(mechanism, ThinsOut) and thins_out(mechanism)):
        return None
    drawn = [torch.rand(made.size, generator=stream(r.seed, "connections")) for r in repeats]
    kept = [mechanism.connections(values, d.to(linear.device), linear) for d in drawn]
    return torch.stack(kept)


def _thin(exists: Tensor, made: Stack) -> tuple[Tensor, ...]:
    """Return which parameters there are as one mask [S,1,R,...] for each parameter."""
    S, R, _ = exists.shape
    pieces = unflatten(exists.float().flatten(0, 1), made.initial)
    return tuple(piece.view(S, 1, R, *piece.shape[1:]) for piece in pieces)
