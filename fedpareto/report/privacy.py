"""What is promised, in sentences: the true guarantee of a point, and the cost of the search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from fedpareto.federation import Federation, is_unseen
from fedpareto.optimizers import Grid, Optimizer, Random
from fedpareto.privacy import VIEWS, Guarantee, Privacy, rounded_up, size_remarks
from fedpareto.problem import is_private
from fedpareto.report.choose import Point
from fedpareto.report.points import View

SEEN_BY = {
    "server": "a server that sees each upload",
    "secagg": "a server that sees sums and knows who took part",
    "release": "anyone who sees the models, participation being secret",
}


@runtime_checkable
class Promises(Protocol):
    """A problem that can state the true (ε, δ) of a point, under its privacy terms."""

    @property
    def privacy(self) -> Privacy:
        """What is to be hidden, and from whom."""

    def guarantee(self, settings: Mapping[str, Any], view: str | None = None) -> Guarantee | None:
        """Return what these settings promise in a view (that of the terms), if anything."""

    def search_guarantee(
        self, tried: Sequence[Mapping[str, Any]], repeats: int, budget: int, chosen: str
    ) -> Guarantee | None:
        """Return what a search promises that trained each of these settings so many times.

        chosen says how it came by its points: see `fedpareto.privacy.CHOSEN`.
        """


SEEDED = (
    "The noise is simulated: it comes from a seed{and_secret}, and whoever knows it can take the "
    "noise off. A deployment must draw its noise from the system's secure randomness, fresh for "
    "every client and round, and keep none of it."
)
ALL_OF_IT = (
    "This is what holds for all that the search shows, the chosen model included: the ε of one "
    "training holds only where nothing of the others is shown."
)
NOT_TESTED = (
    "It covers the data that clients train on. Scores are computed on the test data as they are, "
    "which it does not cover."
)
DATABASE = (
    "Noise and cohorts come from a secret in the study's database beside the seed: keep the "
    "database as private as the data."
)
NOT_COUNTED = (
    "The search itself is not counted: it is taken to train on public or made-up data. If they "
    "were private, choosing by it cost privacy that is counted nowhere here."
)
NO_SPLIT = (
    "Who holds what is left out: how many examples a client holds is private, and no noise hides "
    "it."
)


def terms_of(seen: View) -> Privacy | None:
    """Return the privacy terms of the study; None where its problem has none."""
    problem = seen.study.problem
    return problem.privacy if isinstance(problem, Promises) else None


def guarantee_of(seen: View, point: Point, view: str | None = None) -> Guarantee | None:
    """Return what is promised of a point; None where nothing is."""
    problem = seen.study.problem
    return problem.guarantee(point.settings, view) if isinstance(problem, Promises) else None


def as_in_row(promised: Guarantee, measures: Mapping[str, float]) -> Guarantee:
    """Return a promise with the ε of a point's row, so that one guarantee has one number.

    Both bound the true ε. The search's accountant is a little above a statement's, and its ε is
    what limits held. Should a row's be less, as an older version may have left it, the larger
    stays.
    """
    row = measures.get("epsilon", measures.get(f"epsilon_{promised.view}", math.nan))
    close = math.isclose(row, promised.epsilon, rel_tol=1e-9)
    if not (close or promised.epsilon < row < math.inf):
        return promised
    was, remarks = promised.accountant, size_remarks(promised.epsilon)
    if rounded_up(row) != rounded_up(promised.epsilon) and not close:
        finer = rounded_up(promised.epsilon, 6)
        was = f"that of the study's rows, an upper bound; {was} gives {finer}"
    notes = [*(note for note in promised.notes if note not in remarks), *size_remarks(row)]
    return replace(promised, epsilon=row, accountant=was, notes=tuple(notes))


def headline(seen: View) -> str | None:
    """Return whose view the true ε is for; None where the problem knows no ε."""
    terms = terms_of(seen)
    return terms.view if terms else None


def epsilon_heading(seen: View) -> list[str]:
    """Return the heading of the true ε, if it is known and no objective or limit already."""
    asked = any(o.measure == "epsilon" for o in seen.judges)
    if asked or headline(seen) is None:
        return []
    return [f"true ε ({headline(seen)}){of_one(seen)}"]


def of_one(seen: View) -> str:
    """Say behind the ε of a point that it is one training's, where the search has a larger one."""
    return ", one training" if is_private(seen.study.problem) else ""


def epsilon_text(value: float | None) -> str:
    """Return an ε as people read it, rounded up; none where no noise is added."""
    return rounded_up(value) if value is not None and math.isfinite(value) else "none"


def statements(seen: View) -> list[str]:
    """Return what is promised of the recommended point, of the search, and what to beware of."""
    terms = terms_of(seen)
    if terms is None:
        return []
    point = seen.recommended
    simulated = _simulated(seen, point or next(iter(seen.front), None))
    return [*guarantees(seen, point), *simulated]


def guarantees(seen: View, point: Point | None) -> list[str]:
    """Return what is promised of a point and of the search; what holds stands first.

    Where data are private that is the search's ε, and one training's beside it.
    """
    if point is None:  # what was shown of private data has its price all the same
        return private_search_cost(seen)
    alone, searched = promises(seen, point), search_cost(seen)
    if not alone or not is_private(seen.study.problem):
        return [*alone, *searched]
    first, *more = alone
    new = [note for note in more if note not in searched]
    same = "What is said above of conditions holds for it too." if len(new) < len(more) else ""
    return [*searched, f"One training alone: {first} {same}".rstrip(), *new]


def _simulated(seen: View, point: Point | None) -> list[str]:
    """Say, where noise is added, that it comes from a seed and what that means."""
    if point is None:
        return []
    stored = [point.measures.get(f"epsilon_{view}", math.nan) for view in VIEWS]
    noisy = any(isinstance(v, float) and math.isfinite(v) for v in stored)
    if not noisy and (_unseen(seen) or not guarantee_of(seen, point)):
        return []
    secret = " and a secret in the database" if is_private(seen.study.problem) else ""
    return [SEEDED.format(and_secret=secret)]


def promises(seen: View, point: Point) -> list[str]:
    """Return what is promised of a point, in sentences."""
    if headline(seen) is None:
        return []
    promised = guarantee_of(seen, point)
    if promised is None and _unseen(seen):
        return _stored(point)
    if promised is None:
        return [
            "No true ε is promised: no noise is added, or no bound is known for these weights. "
            "A proxy is not a guarantee."
        ]
    promised = as_in_row(promised, point.measures)
    problem = seen.study.problem
    if isinstance(problem, Federation) and problem.hides_records:
        return [promised.statement(), *promised.notes, *_of_client(seen, point)]
    others = [
        f"{epsilon_text(point.measures.get(f'epsilon_{view}'))} for {SEEN_BY[view]}"
        for view in VIEWS
        if view != headline(seen)
    ]
    also = f"The same point has ε {' and '.join(others)}."
    return [promised.statement(), *promised.notes, also, *_above(point), *_of_record(point)]


ABOVE = (
    "The ε of whoever sees the models alone is above that of whoever sees sums: with a cohort of "
    "fixed size it counts a client replaced by another, since the cohort stays as large, and sums "
    "count one left out. Replacing moves a sum up to twice as far. What one sees of sums says "
    "all that models say, so where the neighbour is the same the smaller ε holds for both."
)


def _above(point: Point) -> list[str]:
    """Explain, where it is so, why models alone have a larger ε than sums."""
    models = point.measures.get("epsilon_release", math.nan)
    sums = point.measures.get("epsilon_secagg", math.nan)
    return [ABOVE] if models > sums else []


def _of_client(seen: View, point: Point) -> list[str]:
    """Say what noise on updates promises a whole client, beside what is promised of a record."""
    whole = point.measures.get("epsilon_client")
    if whole is None:
        return []
    view = headline(seen) or "server"
    return [
        f"A whole client is hidden by the noise on its updates, with ε {epsilon_text(whole)} for "
        f"{SEEN_BY[view]}."
    ]


def _of_record(point: Point) -> list[str]:
    """Say what noise on local steps promises a record, beside what is promised of a client."""
    one = point.measures.get("epsilon_record", math.inf)
    if not math.isfinite(one):
        return []
    return [
        "A record of a client is hidden by the noise on its local steps too, with ε "
        f"{epsilon_text(one)} for whoever looks on."
    ]


def _unseen(seen: View) -> bool:
    """Say whether the noise is that of code of the user's own, which is not run to look."""
    problem = seen.study.problem
    return isinstance(problem, Federation) and is_unseen(problem.mechanism)


def _stored(point: Point) -> list[str]:
    """Return the ε that was stored when a mechanism of the user's own ran, as far as it was."""
    known = {view: point.measures.get(f"epsilon_{view}") for view in VIEWS}
    told = [f"{epsilon_text(known[view])} for {SEEN_BY[view]}" for view in VIEWS if known[view]]
    found = f"found then: ε {', '.join(told)}" if told else "none was stored of this point"
    return [
        "The mechanism is code of your own, which is not run to look at a study, so its promise "
        f"is only what was stored when it ran; {found}. `fedpareto train` runs it and states more."
    ]


CHEAPER = "Fewer trials, public data for the search, or fedpareto plan before it, cost less."


def search_price(seen: View) -> str:
    """Say beside the headline ε what choosing among the trials costs; nothing where none is known.

    It counts trials: earlier rounds of a run are no training of their own.
    """
    problem = seen.study.problem
    if not isinstance(problem, Promises) or not seen.evaluations:
        return ""
    trials = f"{seen.evaluations} {'trial' if seen.evaluations == 1 else 'trials'}"
    if not problem.privacy.private_data:
        noisy = seen.recommended is not None and guarantee_of(seen, seen.recommended) is not None
        if not noisy or _unseen(seen):
            return ""
        return (
            f"The search over {trials} is not in this ε: it is taken to train on public or made-up "
            f"data. On the private data themselves its price comes on top. {CHEAPER}"
        )
    cost = None if _unseen(seen) else _priced(seen)
    if cost is None:
        return f"The search over {trials} trained on private data, and no bound is known for it."
    return (
        f"The search over {trials} trained on private data: all of it together has "
        f"ε = {epsilon_text(cost.epsilon)}, and that is what holds. {CHEAPER}"
    )


def search_epsilons(seen: View) -> dict[str, float]:
    """Return the ε of all of a search on private data by view, as far as a bound is known.

    It holds for every point that is shown. There is none where data are not private.
    """
    view = headline(seen)
    if view is None or not is_private(seen.study.problem) or _unseen(seen):
        return {}
    every = VIEWS if isinstance(seen.study.problem, Federation) else (view,)
    found = {v: _priced(seen, v) for v in every}
    return {v: g.epsilon for v, g in found.items() if g is not None and math.isfinite(g.epsilon)}


def what_holds(seen: View, point: Point | None) -> float | None:
    """Return the ε that holds of a point in the study's view; None where none is promised.

    On private data it is that of the whole search, of every point the same.
    """
    view = headline(seen)
    if view is None:
        return None
    if is_private(seen.study.problem):
        return search_epsilons(seen).get(view)
    held = {} if point is None else point.measures
    value = held.get("epsilon", held.get(f"epsilon_{view}", math.nan))
    return value if math.isfinite(value) else None


def _priced(seen: View, view: str | None = None) -> Guarantee | None:
    """Return what the search promises as a whole in a view; None where no bound is known."""
    problem, study = seen.study.problem, seen.study
    if view and isinstance(problem, Federation):
        problem = replace(problem, privacy=replace(problem.privacy, view=view))
    assert isinstance(problem, Promises)
    ends = {p.trial: p.settings for p in reversed(seen.points)}  # a trial stands before its rounds
    tried = [*reversed(ends.values()), *(t.settings for t in seen.failed)]
    if not tried:
        return None
    return problem.search_guarantee(tried, study.repeats, study.budget, chosen_by(study.optimizer))


def search_cost(seen: View) -> list[str]:
    """Say what choosing among many trained candidates costs, or that it is not counted."""
    problem = seen.study.problem
    if not isinstance(problem, Promises):
        return []
    if not problem.privacy.private_data:
        return [NOT_COUNTED]
    if _unseen(seen):
        return [
            "What the search on private data costs is not stated: the mechanism is code of your "
            "own, which is not run to look at a study."
        ]
    if not (seen.points or seen.failed):
        return []
    cost = _priced(seen)
    if cost is None:
        return [
            "The search trained on private data with no known bound: "
            "what it shows is protected by nothing."
        ]
    together = f"The search trained on private data. All of it together: {cost.statement()}"
    return [together, ALL_OF_IT, *cost.notes, NOT_TESTED, DATABASE]


def private_search_cost(seen: View) -> list[str]:
    """Say what the search cost where data are private; nothing where they are not."""
    return search_cost(seen) if is_private(seen.study.problem) else []


def chosen_by(optimizer: Optimizer) -> str:
    """Say how an optimizer comes by its points, as `fedpareto.privacy.CHOSEN` names it.

    Those that we know not to look at results are listed here; any other may look. The points of a
    Sobol sequence or a grid depend on one another, so they are no independent draws.
    """
    if type(optimizer) is Random:
        return "drawn" if optimizer.sequence == "uniform" else "listed"
    return "listed" if type(optimizer) is Grid else "adaptive"


def as_data(seen: View) -> dict[str, Any]:
    """Return what is promised of the recommended point as plain data, for programs."""
    view = headline(seen)
    point = seen.recommended
    if view is None:
        return {}
    promised = None if point is None else guarantee_of(seen, point)
    if point is not None and promised is not None:
        promised = as_in_row(promised, point.measures)
    return {
        "view": view,
        "statement": promised.statement() if promised else None,
        "delta": promised.delta if promised else None,
        "notes": statements(seen),
    }
