"""What can be said of a federation without importing or running the user's own code in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.federation.columns import columns_of
from fedpareto.mechanisms import Mechanism, links_of
from fedpareto.privacy import VIEWS
from fedpareto.space import FloatArray, Values

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation


@dataclass(frozen=True)
class Unseen:
    """A part of the user's own that is known by its settings alone."""


def is_unseen(mechanism: Mechanism) -> bool:
    """Say whether what protects is code of the user's own that is not there, nor its noise."""
    return any(isinstance(link, Unseen) for link in links_of(mechanism))


def known_unrun(
    problem: Federation, values: Values, asked: Collection[str]
) -> dict[str, FloatArray]:
    """Return those measures that follow from settings without a model or data, name → [n]."""
    if is_unseen(problem.mechanism):
        return {}
    n = len(next(iter(values.values()), ()))
    found = columns_of(problem, values, n, VIEWS)
    return {name: v for name, v in found.items() if name in asked and not np.isnan(v).all()}


def known_alike(problem: Federation) -> bool:
    """Say whether what is known without a run is known too where the user's own code is not there.

    Then an optimizer that asks for it proposes the same. It is tried at both ends of the space and
    in its middle.
    """
    measures = problem.measures
    asked = {
        name
        for name in problem.asked
        if measures[name].source == "settings" or measures[name].figures
    }
    points = np.repeat([[0.0], [0.5], [1.0]], len(problem.space), axis=1)
    found = known_unrun(problem, problem.space.decode(points), asked)
    return all(name in found and bool(np.isfinite(found[name]).all()) for name in asked)
