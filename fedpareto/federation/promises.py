"""What is promised of points and of a search: statements of true (ε, δ)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.contract import Seen
from fedpareto.federation.columns import (
    Columns,
    contract_of,
    hides_records,
    people,
    rounds_of,
    stated_loss,
    works_on,
)
from fedpareto.federation.local import LOCAL_STEPS
from fedpareto.mechanisms import MECHANISMS, links_of, states_loss
from fedpareto.privacy import (
    Guarantee,
    guarantee,
    random_number_note,
    record_guarantee,
    record_selection_guarantee,
    selection_guarantee,
)
from fedpareto.privacy.stated import stated_guarantee
from fedpareto.settings import searched
from fedpareto.space import Choice, Variable

if TYPE_CHECKING:
    from fedpareto.federation.problem import Federation


def promise(
    problem: Federation, settings: Mapping[str, Any], view: str | None = None
) -> Guarantee | None:
    """Return what is promised of one point; None without noise, or where no bound is known."""
    values = {name: [value] for name, value in settings.items()}
    columns = rounds_of(problem, values, 1)
    if hides_records(problem):
        return _of_records(problem, columns)
    if states_loss(problem.mechanism):
        return _stated(problem, columns, view or problem.privacy.view)
    seen = _seen(problem, columns, view or problem.privacy.view)
    if seen is None:
        return None
    terms = seen.terms(int(columns["rounds"][0]))
    numbers = {n: float(v[0]) if isinstance(v, np.ndarray) else v for n, v in terms.items()}
    found = guarantee(problem.privacy, **numbers)
    return replace(found, notes=found.notes + _weighed(problem))


def _stated(problem: Federation, columns: Columns, view: str) -> Guarantee | None:
    """Return what a mechanism promises that states its own loss, of one point."""
    found = stated_guarantee(
        problem.privacy,
        stated_loss(problem, columns, 0),
        name=type(problem.mechanism).__name__,
        of=works_on(problem.mechanism),
        rounds=int(columns["rounds"][0]),
        clients=problem.data.clients,
        cohort=float(columns["cohort"][0]),
        sampling=problem.training.sampling,
        view=view,
    )
    return found and replace(found, notes=found.notes + _weighed(problem))


def search_promise(
    problem: Federation,
    tried: Sequence[Mapping[str, Any]],
    repeats: int,
    budget: int,
    chosen: str,
) -> Guarantee | None:
    """Return what a search promises that trains each of these points so many times.

    An adaptive one is priced as a whole budget of the worst point that it could have chosen: which
    it chose is itself told by the data.
    """
    adaptive = chosen == "adaptive"
    if adaptive and not _ours(problem):
        return None
    corners = [] if chosen == "listed" else corners_of(problem)
    if hides_records(problem):
        points = [*tried, *corners] if adaptive else tried
        trials = max(budget, len(tried)) if adaptive else len(tried)
        return _of_all_records(problem, points, trials, repeats, chosen)
    terms = _terms_of(problem, [*tried, *corners] if adaptive else tried)
    if terms is None:
        return None
    trials = max(budget, len(tried)) if adaptive else len(tried)
    privacy = problem.privacy
    found = selection_guarantee(privacy, **terms, trials=trials, repeats=repeats, chosen=chosen)
    found = replace(found, notes=found.notes + _weighed(problem))
    every = _terms_of(problem, corners) if chosen == "drawn" else None
    if every is None:
        return found
    note = random_number_note(privacy, **every, trials=trials, repeats=repeats)
    return replace(found, notes=found.notes + note)


def _of_records(problem: Federation, columns: Columns) -> Guarantee | None:
    """Return what local steps promise the records of one point; None without noise."""
    records = contract_of(problem, columns).records
    if records is None or not (columns["record_noise_multiplier"] > 0).all():
        return None
    found = record_guarantee(
        problem.privacy,
        records,
        rounds=int(columns["rounds"][0]),
        clients=problem.data.clients,
        cohort=float(columns["cohort"][0]),
        sampling=problem.training.sampling,
        people=people(problem),
    )
    return replace(found, notes=found.notes + _standardised(problem))


def _of_all_records(
    problem: Federation,
    points: Sequence[Mapping[str, Any]],
    trials: int,
    repeats: int,
    chosen: str,
) -> Guarantee | None:
    """Return what local steps promise the records of a whole search; None without noise."""
    values = {name: [s[name] for s in points] for name in problem.space.names}
    columns = rounds_of(problem, values, len(points))
    records = contract_of(problem, columns).records
    if records is None or not (columns["record_noise_multiplier"] > 0).all():
        return None
    found = record_selection_guarantee(
        problem.privacy,
        records,
        rounds=columns["rounds"],
        clients=problem.data.clients,
        cohort=float(np.max(columns["cohort"])),
        sampling=problem.training.sampling,
        people=people(problem),
        trials=trials,
        repeats=repeats,
        chosen=chosen,
    )
    return replace(found, notes=found.notes + _standardised(problem))


def _ours(problem: Federation) -> bool:
    """Say whether the worst point lies in a corner: it does for our own mechanisms and local steps.

    Of the user's own nobody knows where in their ranges the noise is least.
    """
    if hides_records(problem):
        return type(problem.local) in LOCAL_STEPS.values()
    return all(type(link) in MECHANISMS.values() for link in links_of(problem.mechanism))


def _standardised(problem: Federation) -> tuple[str, ...]:
    """Say what statistics of private records tell, where ε is one of records."""
    if problem.data.standardise != "site":
        return ()
    return (
        "Inputs are standardised by the mean and spread of each site's own training records. A "
        "record moves these a little, and with them all others of its site, which is not counted: "
        "for a guarantee of the whole, standardise by public statistics (data.standardise).",
    )


def _weighed(problem: Federation) -> tuple[str, ...]:
    """Say what weights by size tell."""
    if problem.training.weighting == "uniform":
        return ()
    return ("Uploads are weighed by how many examples a client holds, which is taken to be known.",)


def corners_of(problem: Federation) -> list[dict[str, Any]]:
    """Return the corners of the search space: each end of what noise, cohort or rounds depend on.

    These are the sample ratio, the rounds, how much is trained in one, and every variable of the
    mechanism, the local step and the model, each choice in turn; what else is searched stands in
    its middle.
    """
    parts = (problem.mechanism, problem.model, problem.local)
    names = {"sample_ratio", "rounds", "batch_size", "local_steps", "local_epochs"}
    names |= {v.name for part in parts for v in searched(part)}
    ends = [_ends(v) if v.name in names else [v.decode(0.5)] for v in problem.space.variables]
    return [
        dict(zip(problem.space.names, corner, strict=True)) for corner in itertools.product(*ends)
    ]


def _ends(variable: Variable) -> Sequence[Any]:
    """Return both ends of a range, or every choice."""
    return variable.choices if isinstance(variable, Choice) else (variable.low, variable.high)


def _terms_of(problem: Federation, points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return what an accountant needs of points; None unless noise hides every one."""
    values = {name: [s[name] for s in points] for name in problem.space.names}
    columns = rounds_of(problem, values, len(points))
    seen = _seen(problem, columns, problem.privacy.view)
    return None if seen is None else seen.terms(columns["rounds"])


def _seen(problem: Federation, columns: Columns, view: str) -> Seen | None:
    """Return what an onlooker sees of these points; None unless noise hides every one."""
    seen = contract_of(problem, columns).seen(view, problem.privacy.replaces_clients)
    if seen is None or not (columns["sigma"] > 0).all():
        return None
    return seen
