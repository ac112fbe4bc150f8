"""How the federation trains: the settings of local training and of who takes part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpareto.contract import SAMPLINGS, WEIGHTINGS
from fedpareto.errors import SettingError, did_you_mean
from fedpareto.federation.losses import LOSSES
from fedpareto.settings import Real, Whole, largest, least, setting
from fedpareto.space import Choice, Float, FloatArray, Integer, Variable


@dataclass(frozen=True)
class Work:
    """How much a client trains in a round: epochs or steps, the other is 0."""

    batch_size: int
    epochs: int
    steps: int

    def of(self, records: int) -> tuple[int, int]:
        """Return the steps that a client with so many records takes, and the records it sees."""
        batch = min(self.batch_size, records)
        if self.steps:
            return self.steps, self.steps * batch
        return self.epochs * math.ceil(records / batch), self.epochs * records


@dataclass(frozen=True)
class Training:
    """Each round some clients train locally, and the server moves by what they send."""

    learning_rate: Real = setting(help="learning rate of local SGD", above=0, at_most=1e9)
    rounds: Whole = setting(10, help="rounds of the federation, T", at_least=1, at_most=100_000)
    local_epochs: Whole = setting(
        0,
        help="passes over a client's records per round; or give local_steps",
        at_least=0,
        at_most=10_000,
    )
    local_steps: Whole = setting(
        0, help="mini-batch steps per round; or give local_epochs", at_least=0, at_most=1_000_000
    )
    batch_size: Whole = setting(
        32,
        help="records per mini-batch; a client with fewer takes all it has",
        at_least=1,
        at_most=1_000_000,
    )
    momentum: Real = setting(
        0.0, help="momentum of local SGD, started anew each round", at_least=0, at_most=0.9999
    )
    sample_ratio: Real = setting(
        1.0, help="share q of the clients that take part in a round", above=0, at_most=1
    )
    sampling: str = setting(
        "fixed",
        help="a cohort of fixed size, drawn without replacement; or poisson: each client takes "
        "part by its own chance, and the server divides by the expected cohort",
        options=SAMPLINGS,
        search=False,
    )
    weighting: str = setting(
        "uniform",
        help="how the server weighs clients: all the same, or by number of records; no true (ε, δ) "
        "is known for sums weighted by size",
        options=WEIGHTINGS,
        search=False,
    )

    evaluate_every: int = setting(
        1,
        help="judge the model on the test records after every nth round, and after the last",
        at_least=1,
        at_most=100_000,
        search=False,
    )
    device: str = setting(
        "auto",
        help="where to train; auto takes a CUDA device if there is one",
        options=("auto", "cpu", "cuda"),
        search=False,
    )
    tf32: bool = setting(
        True,
        help="let a CUDA device round the inputs of products to TF32: faster, three digits",
        search=False,
    )
    loss: str = setting(
        "cross_entropy",
        help="what local training makes small: cross_entropy; mse, the mean squared error; or your "
        "own function of scores and labels as package.module:function",
        search=False,
    )

    def __post_init__(self) -> None:
        lengths = {"local_epochs": self.local_epochs, "local_steps": self.local_steps}
        if sum(largest(length) > 0 for length in lengths.values()) != 1:
            found = ", ".join(f"{name} = {_text(length)}" for name, length in lengths.items())
            raise SettingError(
                f"exactly one of local_epochs and local_steps must be given, found {found}."
            )
        for name, length in lengths.items():
            if isinstance(length, Variable) and least(length) < 1:
                raise SettingError(
                    f"{name}: must be at least 1 where it is searched, found {_text(length)}."
                )
        if self.loss not in LOSSES and ":" not in self.loss:
            raise SettingError(
                f"loss: there is no loss {self.loss!r}. {did_you_mean(self.loss, LOSSES)} Your "
                "own: a function as package.module:function."
            )

    def works(self, columns: Mapping[str, Sequence[float] | FloatArray], n: int) -> list[Work]:
        """Return how much the clients of each of n federations train.

        columns holds what is searched, name → [n].
        """
        held = (self.batch_size, self.local_epochs, self.local_steps)
        each = [columns[v.name] if isinstance(v, Variable) else [v] * n for v in held]
        return [Work(*map(int, row)) for row in zip(*each, strict=True)]

    @property
    def work(self) -> Work:
        """How much a client trains in a round, where that is not searched."""
        (work,) = self.works({}, 1)
        return work

    @property
    def works_differ(self) -> bool:
        """Whether federations may differ in how much their clients train in a round."""
        held = (self.batch_size, self.local_epochs, self.local_steps)
        return any(isinstance(v, Variable) for v in held)


def _text(length: Whole) -> str:
    """Return a number, a range or a list of choices as it may be written."""
    if isinstance(length, Choice):
        return str(list(length.choices))
    return f"[{length.low}, {length.high}]" if isinstance(length, Integer | Float) else str(length)
