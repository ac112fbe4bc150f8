"""Settings as columns: every number of many points, and what follows from settings alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.contract import Records, Round, expected_cohorts
from fedpareto.federation.data import load
from fedpareto.federation.facts import Facts
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.sizes import sizes
from fedpareto.federation.split import fixed_sizes
from fedpareto.mechanisms import (
    AddsGaussian,
    adds_noise,
    hides_updates,
    noise_comes_last,
    states_loss,
)
from fedpareto.privacy import VIEWS, Privacy, epsilon, record_epsilon
from fedpareto.privacy.stated import replaces, stated_epsilon
from fedpareto.settings import named
from fedpareto.space import Choice, FloatArray, Values, Variable

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation
    from fedpareto.federation.setup import Setup
    from fedpareto.mechanisms import Mechanism

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
    out = rounds_of(problem, values, n)
    size, linear = _sizes(problem, values, n)
    out |= {"parameters": size, "linear_parameters": linear}
    return out | epsilons(problem, out, views)


def rounds_of(problem: Federation, values: Values, n: int) -> dict[str, FloatArray]:
    """Return what an accountant needs of n points, name → [n]: no model and no data are read."""
    given = given_of(problem, values, n)
    clients = problem.data.clients
    cohorts = expected_cohorts(given["sample_ratio"], clients, problem.training.sampling)
    out = given | {
        "clients": np.full(n, float(clients)),
        "delta": np.full(n, problem.privacy.delta(people(problem))),
        "cohort": cohorts,
    }
    return out | _noise(problem, given | {"cohort": cohorts})


def _sizes(problem: Federation, values: Values, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the parameters of n models, all and those of linear layers; nan where none is run."""
    if problem.looked_at:
        return np.full(n, np.nan), np.full(n, np.nan)
    facts = problem.kept or Facts.of(load(problem.data))
    size, linear = sizes(problem.model, values, n, facts.shape, facts.classes)
    return size, linear


def _noise(problem: Federation, columns: Columns) -> dict[str, FloatArray]:
    """Return each client's noise, the norm it hides and the multiplier on the sum, name → [n].

    columns holds what training gives a mechanism. The multiplier that Xiao 2025, Eq. 7 counts is on
    whatever noise_on says.
    """
    mechanism = problem.mechanism
    if not (isinstance(mechanism, AddsGaussian) and adds_noise(mechanism)):
        return {}
    shape = columns["rounds"].shape
    sigma, norm = (
        np.broadcast_to(np.asarray(v, dtype=np.float64), shape) for v in mechanism.gaussian(columns)
    )
    multiplier = sigma * np.sqrt(columns["cohort"]) / norm
    averaged = named(mechanism).get("noise_on") == "average"
    return {
        "sigma": sigma,
        "norm": norm,
        "clipping_norm": columns.get("clipping_norm", norm),
        "noise_multiplier": multiplier,
        "multiplier_of_eq7": multiplier / columns["cohort"] if averaged else multiplier,
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
        _records(problem, columns),
    )


def _records(problem: Federation, columns: Columns) -> Records | None:
    """Return how local steps hide records; None where they do not, or nobody knows how many."""
    local = problem.local
    if not isinstance(local, ClipsRecords) or not knows_sizes(problem):
        return None
    norm = columns["record_clipping_norm"]
    return Records(
        columns["record_noise_multiplier"] * norm,
        norm,
        columns["batch_size"],
        tuple(sorted(set(sizes_of_clients(problem)))),
        columns["local_steps"],
        columns["local_epochs"],
        local.batches,
    )


def knows_sizes(problem: Federation) -> bool:
    """Say whether it can be known how many records clients hold: not where data are not run."""
    return problem.kept is not None or not (problem.looked_at and problem.data.own)


def sizes_of_clients(problem: Federation) -> tuple[int, ...]:
    """Return how many records clients hold, [K], where local steps hide records."""
    return problem.kept.sizes if problem.kept else fixed_sizes(problem.data)


def people(problem: Federation) -> int:
    """Return how many there are of what a promise hides as one: clients, or their records."""
    if not hides_records(problem):
        return problem.data.clients
    return sum(sizes_of_clients(problem)) if knows_sizes(problem) else 1


def hides_records(problem: Federation) -> bool:
    """Say whether the promise is about records that local steps hide."""
    return problem.privacy.unit == "record" and isinstance(problem.local, ClipsRecords)


def epsilons(problem: Federation, columns: Columns, views: Sequence[str]) -> dict[str, FloatArray]:
    """Return the true ε of these views and the headline, name → [n].

    It is infinite without noise, and nan where no bound is known. Where local steps hide records,
    the ε of a record, epsilon_record, is the same in every view, and that of a client where noise
    is added to updates too, epsilon_client, is the headline view's.
    """
    if not views:
        return {}
    contract = contract_of(problem, columns)
    privacy = problem.privacy
    out = {}
    if isinstance(problem.local, ClipsRecords):
        out["epsilon_record"] = _of_records(problem, contract, columns)
    if hides_records(problem):
        found = dict.fromkeys(views, out["epsilon_record"])
        if contract.noise is not None:
            whole = replace(privacy, unit="client")
            out["epsilon_client"] = _of_view(whole, contract, columns, privacy.view)
    elif states_loss(problem.mechanism):
        found = dict.fromkeys(views, _of_stated(problem, columns))
    else:
        found = {view: _of_view(privacy, contract, columns, view) for view in views}
    out |= {f"epsilon_{view}": each for view, each in found.items()}
    return out | ({"epsilon": found[privacy.view]} if privacy.view in found else {})


def _of_view(privacy: Privacy, contract: Round, columns: Columns, view: str) -> FloatArray:
    """Return the true ε of one view by noise on updates, [n]."""
    shape = columns["rounds"].shape
    seen = contract.seen(view, privacy.replaces_clients)
    if contract.noise is None:
        return np.full(shape, np.inf)
    if seen is None:
        return np.full(shape, np.nan)
    return epsilon(privacy, **seen.terms(columns["rounds"]))


def _of_stated(problem: Federation, columns: Columns) -> FloatArray:
    """Return the true ε of a mechanism that states its loss, [n]; infinite where it states none."""
    known: dict[tuple[float, ...], float] = {}  # points that differ in nothing that counts
    rounds, delta = columns["rounds"], columns["delta"]
    names = [n for n in (*named(problem.mechanism), "cohort", "rounds") if n in columns]
    rows = np.stack([columns[n] for n in names], axis=1)
    for i, row in enumerate(map(tuple, rows.tolist())):
        if row not in known:
            loss = stated_loss(problem, columns, i)
            known[row] = stated_epsilon(loss, int(rounds[i]), float(delta[i]))
    return np.array([known[row] for row in map(tuple, rows.tolist())])


def stated_loss(problem: Federation, columns: Columns, i: int) -> Any:
    """Return the loss that the mechanism states for one of these points; None if it states none."""
    mechanism = states_loss(problem.mechanism)
    if mechanism is None:
        return None
    names = [n for n in (*named(problem.mechanism), "cohort") if n in columns]
    values = {n: float(columns[n][i]) for n in names}
    return mechanism.privacy_loss(values, replaces(problem.privacy, works_on(problem.mechanism)))


def works_on(mechanism: Mechanism) -> str:
    """Say what a mechanism works on: a client's update, or its parameters."""
    return str(getattr(mechanism, "of", "update"))


def _of_records(problem: Federation, contract: Round, columns: Columns) -> FloatArray:
    """Return the true ε of a record that local steps hide, [n]."""
    rounds = columns["rounds"]
    if contract.records is None:
        return np.full(rounds.shape, np.nan)
    total = sum(sizes_of_clients(problem))
    return record_epsilon(problem.privacy, contract.records, rounds, problem.privacy.delta(total))
