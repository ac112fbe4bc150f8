"""What a figure or table of a paper is made of: studies, what they found, and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedpareto.study import Study
from fedpareto.trials import Trial

SCALES = ("quick", "paper")


@dataclass(frozen=True)
class Part:
    """One study: a file of examples/papers and what is changed in it, section.key → value."""

    name: str
    file: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = None  # changed on top at quick scale; None: not run there
    seconds: Mapping[str, float] = field(default_factory=dict)  # expected, by scale
    after: str = ""  # the study, another by its optimizer alone, whose rows it takes over


@dataclass(frozen=True)
class Rows:
    """A study that was run, and its trials."""

    study: Study
    trials: list[Trial]
    losses: dict[int, list[list[float]]]  # trial → test loss after every round of each repeat
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """One thing that the paper says, beside what our rows say."""

    what: str
    paper: str
    source: str
    ours: str
    verdict: str  # agrees, differs or open; where the paper says nothing, above, below or level
    why: str


@dataclass(frozen=True)
class Line:
    """A line or points of a figure."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "line"  # or points, or bars: then x counts the groups of its panel
    of: str = "ours"  # or paper


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log: str = ""  # the axes with a logarithmic scale: x, y or xy
    groups: tuple[str, ...] = ()  # of bars, from left to right


@dataclass(frozen=True)
class Found:
    """What the rows of an experiment say."""

    comparisons: tuple[Comparison, ...]
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper."""

    name: str
    title: str
    left_out: str  # what our studies of it leave out
    parts: tuple[Part, ...]
    report: Callable[[Mapping[str, Rows]], Found]

    def at(self, scale: str) -> tuple[Part, ...]:
        """Return the studies of a scale."""
        return tuple(p for p in self.parts if scale == "paper" or p.quick is not None)

    def expected(self, scale: str) -> float:
        """Return the seconds that the studies of a scale are expected to take."""
        return sum(p.seconds.get(scale, 0.0) for p in self.at(scale))


def verdict_of(comparisons: Sequence[Comparison]) -> str:
    """Return differs if a statement of the paper does, agrees if all do, and else open."""
    found = {c.verdict for c in comparisons} & {"agrees", "differs", "open"}
    if "differs" in found:
        return "differs"
    return "agrees" if found == {"agrees"} else "open"


def shown(number: float) -> str:
    """Return a number as it is printed."""
    return f"{number:.4g}"
