"""What is attacked, what an attack is, and what it says of what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedpareto.federation import Federation
from fedpareto.federation.columns import given_of, hides_records
from fedpareto.mechanisms import Encrypts, links_of
from fedpareto.problem import tell
from fedpareto.space import FloatArray, Values

ENCRYPTED = "uploads are encrypted: the server sees ciphertexts, and they tell nothing of a client"

TRAINS = "data are private: a training for an attack would cost privacy that is counted nowhere"

FAINT = 1e-3  # noise in norms, below which rounding is seen beside it

NO_NOISE = "no noise, or too little beside the rounding of numbers"

OF_STEPS = (
    "the ε is that of a record, hidden by noise in the steps of its client, and counts what that "
    "client sends alone: see server"
)


@dataclass(frozen=True)
class Points:
    """Points of one study that are attacked side by side."""

    problem: Federation
    trials: tuple[int, ...]
    settings: tuple[dict[str, Any], ...]

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def values(self) -> Values:
        """The settings by name, name → [n]."""
        return {name: [s[name] for s in self.settings] for name in self.problem.space.names}

    @cached_property
    def given(self) -> dict[str, FloatArray]:
        """Every numeric setting as training is given it, name → [n]."""
        return given_of(self.problem, self.values, len(self))

    @cached_property
    def columns(self) -> dict[str, FloatArray]:
        """The settings and what follows from them, name → [n]; no ε."""
        return self.problem.columns(self.values, len(self), ())

    @property
    def rounds(self) -> int:
        """The rounds of the longest run."""
        return int(self.columns["rounds"].max())

    def claim(self, view: str) -> FloatArray:
        """Return the ε that is stated for what this view sees, [n]."""
        return self.problem.columns(self.values, len(self), (view,))[f"epsilon_{view}"]

    @property
    def delta(self) -> float:
        return self.problem.delta

    @property
    def hidden_in_steps(self) -> bool:
        """Whether the ε is of noise in the steps of local training, and not of that on uploads."""
        return hides_records(self.problem)

    @property
    def noisy(self) -> list[bool]:
        """Which points have noise that 32-bit numbers resolve beside what it hides."""
        if self.hidden_in_steps:
            noise = self.columns["record_noise_multiplier"]
        else:
            noise = self.columns["sigma"] / self.columns["norm"]
        return [bool(z >= FAINT) for z in noise]

    @property
    def encrypted(self) -> bool:
        """Whether the server gets ciphertexts."""
        return any(isinstance(link, Encrypts) for link in links_of(self.problem.mechanism))

    def at(self, places: Sequence[int]) -> Points:
        """Return some of the points."""
        return replace(
            self,
            trials=tuple(self.trials[i] for i in places),
            settings=tuple(self.settings[i] for i in places),
        )

    def where(self, kept: Sequence[bool]) -> Points:
        """Return those of the points that are kept."""
        return self.at(np.flatnonzero(kept).tolist())


@dataclass(frozen=True)
class Finding:
    """What one attack found of one point."""

    measures: dict[str, Any]  # numbers, texts and lists, to be kept as JSON
    picture: bytes | None = None  # PNG


@runtime_checkable
class Attack(Protocol):
    """A frozen dataclass of settings that attacks points side by side."""

    def inapplicable(self, points: Points, view: str) -> str | None:
        """Return why this view gives nothing to attack; None where it does."""

    def seconds(self, points: Points, view: str) -> float:
        """Return about how long the attack takes."""

    def within(self, share: float) -> Attack:
        """Return the attack with about this share of its work, if it still says something."""

    def audit(self, points: Points, view: str, seed: int) -> list[Finding]:
        """Attack all points at once and return what was found of each, in their order.

        The same seed gives the same findings. `problem.tell` says how far it has come.
        """


def where_noisy(points: Points, attack: Callable[[Points], list[Finding]]) -> list[Finding]:
    """Return what is found of points with noise, and of the others that there is none."""
    noisy = points.noisy
    found = iter(attack(points.where(noisy)) if any(noisy) else [])
    return [
        next(found) if there else Finding({"without": NO_NOISE, "alarm": False}) for there in noisy
    ]


def parts(n: int, size: int) -> list[range]:
    """Cut n repeats into blocks of at most so many."""
    return [range(i, min(i + size, n)) for i in range(0, n, size)]


def told(blocks: Sequence[Any], i: int) -> None:
    """Say that block i of several is done."""
    tell((i + 1) / len(blocks))
