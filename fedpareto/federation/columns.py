"""Settings as columns: every number of many points, and what follows from settings alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.contract import Round, expected_cohorts
from fedpareto.federation.data import load
from fedpareto.federation.sizes import sizes
from fedpareto.mechanisms import AddsGaussian, adds_noise, hides_updates, noise_comes_last
from fedpareto.privacy import VIEWS, epsilon
from fedpareto.settings import named
from fedpareto.space import Choice, FloatArray, Values, Variable

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation
    from fedpareto.federation.setup import Setup

Columns = Mapping[str, FloatArray]  # name → [n]


def settings_of(held: Federation | Setup) -> dict[str, object]:
    """Return every setting that a training is given, by the name a point knows it by."""
    parts = (held.training, held.mechanism, held.server, held.local)
    return {name: value for part in parts for name, value in named(part).items()}


def given_of(problem: Federation, values: Values, n: int) -> dict[str, FloatArray]:
    """Return every numeric setting of n points as training is given it, name → [n].

    A choice among texts is given by its place among them.
    """
    held = settings_of(problem)
    held |= {v.name: _numeric(v, values[v.name]) for v in problem.space.variables if v.name in held}
    return {
        name: np.broadcast_to(np.asarray(v, dtype=np.float64), (n,))
        for name, v in held.items()
        if not isinstance(v, str | bool | tuple | Variable | None)
    }


def _numeric(variable: Variable, values: Sequence[Any]) -> Sequence[float]:
    """Return values of a variable as numbers: of texts, the place of each among the choices."""
    if isinstance(variable, Choice) and isinstance(variable.choices[0], str):
        return [variable.choices.index(value) for value in values]
    return values


def columns_of(
    problem: Federation, values: Values, n: int, views: Sequence[str] = VIEWS
) -> dict[str, FloatArray]:
    """Return every numeric setting of n points and what follows from settings, name → [n].

    Among them the true ε of these views. What follows may have the name of a setting, such as
    noise_multiplier, and another value: training is given the settings alone, see `given_of`.
    """
    given = given_of(problem, values, n)
    clients = problem.data.clients
    cohorts = expected_cohorts(given["sample_ratio"], clients, problem.training.sampling)
    size, linear = _sizes(problem, values, n)
    out = given | {
        "clients": np.full(n, float(clients)),
        "delta": np.full(n, problem.privacy.delta(clients)),
        "cohort": cohorts,
        "parameters": size,
        "linear_parameters": linear,
    }
    out |= _noise(problem, given | {"cohort": cohorts})
    return out | epsilons(problem, out, views)


def _sizes(problem: Federation, values: Values, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the parameters of n models, all and those of linear layers; nan where none is run."""
    if problem.looked_at:
        return np.full(n, np.nan), np.full(n, np.nan)
    data = load(problem.data)
    size, linear = sizes(problem.model, values, n, data.shape, data.classes)
    return size, linear


def _noise(problem: Federation, columns: Columns) -> dict[str, FloatArray]:
    """Return each client's noise, the norm it hides and the multiplier on the sum, name → [n].

    columns holds what training gives a mechanism.
    """
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
    noisy = adds_noise(problem.mechanism)  # sigma and norm may be settings of a mechanism without
    return Round(
        problem.data.clients,
        columns["cohort"],
        training.sampling,
        training.weighting,
        columns["sigma"] if noisy else None,
        columns["norm"] if noisy else None,
        noise_comes_last(problem.mechanism),
        hides_updates(problem.mechanism),
    )


def replaced(problem: Federation) -> bool:
    """Say whether the promise is about a client that any other, of any size, may stand in for."""
    return problem.privacy.unit == "client" and problem.privacy.adjacency == "replace"


def epsilons(problem: Federation, columns: Columns, views: Sequence[str]) -> dict[str, FloatArray]:
    """Return the true ε of these views and the headline, name → [n].

    It is infinite without noise, and nan where no bound is known.
    """
    contract = contract_of(problem, columns)
    shape = columns["rounds"].shape
    out = {}
    for view in views:
        seen = contract.seen(view, replaced(problem))
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
