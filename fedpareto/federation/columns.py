"""Settings as columns: every number of many points, and what follows from settings alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.contract import Round, expected_cohorts
from fedpareto.federation.data import load
from fedpareto.federation.sizes import sizes
from fedpareto.mechanisms import AddsGaussian, adds_noise, hides_updates, noise_comes_last
from fedpareto.privacy import VIEWS, epsilon
from fedpareto.settings import named
from fedpareto.space import FloatArray, Values, Variable

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation
    from fedpareto.federation.setup import Setup

Columns = Mapping[str, FloatArray]  # name → [n]


def settings_of(held: Federation | Setup) -> dict[str, object]:
    """Return every setting that a training is given, by the name a point knows it by."""
    parts = (held.training, held.mechanism, held.server, held.local)
    return {name: value for part in parts for name, value in named(part).items()}


def columns_of(
    problem: Federation, values: Values, n: int, views: Sequence[str] = VIEWS
) -> dict[str, FloatArray]:
    """Return every numeric setting of n points and what follows from settings, name → [n].

    Among them the true ε of these views.
    """
    held = settings_of(problem)
    held |= {name: values[name] for name in problem.space.names if name in held}
    clients = problem.data.clients
    held |= {"clients": clients, "delta": problem.privacy.delta(clients)}
    out = {
        name: np.broadcast_to(np.asarray(v, dtype=np.float64), (n,))
        for name, v in held.items()
        if not isinstance(v, str | bool | tuple | Variable | None)
    }
    out["cohort"] = expected_cohorts(out["sample_ratio"], clients, problem.training.sampling)
    data = load(problem.data)
    found = sizes(problem.model, values, n, data.shape, data.classes)
    out["parameters"], out["linear_parameters"] = found
    out |= _noise(problem, out)
    return out | epsilons(problem, out, views)


def _noise(problem: Federation, columns: Columns) -> dict[str, FloatArray]:
    """Return each client's noise, the norm it hides and the multiplier on the sum, name → [n]."""
    mechanism = problem.mechanism
    if not (isinstance(mechanism, AddsGaussian) and adds_noise(mechanism)):
        return {}
    shape = columns["rounds"].shape
    sigma, norm = (
        np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in mechanism.gaussian(columns)
    )
    return {
        "sigma": sigma,
        "norm": norm,
        "clipping_norm": columns.get("clipping_norm", norm),
        "noise_multiplier": sigma * np.sqrt(columns["cohort"]) / norm,
    }


def contract_of(problem: Federation, columns: Columns) -> Round:
    """Return the terms of a round of these points."""
    training = problem.training
    return Round(
        problem.data.clients,
        columns["cohort"],
        training.sampling,
        training.weighting,
        columns.get("sigma") if "norm" in columns else None,
        columns.get("norm"),
        noise_comes_last(problem.mechanism),
        hides_updates(problem.mechanism),
    )


def epsilons(problem: Federation, columns: Columns, views: Sequence[str]) -> dict[str, FloatArray]:
    """Return the true ε of these views and the headline, name → [n].

    It is infinite without noise, and nan where no bound is known.
    """
    contract = contract_of(problem, columns)
    shape = columns["rounds"].shape
    out = {}
    for view in views:
        seen = contract.seen(view)
        if contract.noise is None:
            found = np.full(shape, np.inf)
        elif seen is None:
            found = np.full(shape, np.nan)
        else:
            found = epsilon(problem.privacy, **seen.terms(columns["rounds"]))
        out[f"epsilon_{view}"] = found
        if view == problem.privacy.view:
            out["epsilon"] = found
    return out
