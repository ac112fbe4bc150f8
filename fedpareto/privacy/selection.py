"""What the search itself costs: every candidate trained on private data, and one chosen.

A study trains a fixed number of candidates and shows them all, so the costs of their trainings add
up. That holds for costs that were known beforehand: where a candidate is chosen by what earlier
ones showed, each counts as the worst that could have been chosen. Had candidates been drawn
independently, their number at random, and the best alone been shown, choosing would cost little
(Liu and Talwar 2019; Papernot and Steinke 2022); where they were drawn so, that ε is given beside
it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import Privacy, Terms, terms
from fedpareto.privacy.statement import Guarantee, guarantee, rounded_up
from fedpareto.settings import Rule, checked
from fedpareto.space import FloatArray

# How a search comes by its points: by what earlier ones showed, by a list made without looking at
# results, or by independent draws from one distribution.
CHOSEN = ("adaptive", "listed", "drawn")
# How the number of trainings might be drawn, each with the shape that dp-accounting asks for.
SHAPES = {"Poisson": math.inf, "geometric": 1.0, "logarithmic": 0.0}


def selection_guarantee(
    privacy: Privacy,
    *,
    noise: ArrayLike,
    clipping_norm: ArrayLike,
    cohort: ArrayLike,
    clients: int,
    rounds: ArrayLike,
    sampling: str,
    trials: int,
    repeats: int = 1,
    view: str | None = None,
    noise_last: bool = True,
    centred: bool = True,
    chosen: str = "listed",
) -> Guarantee:
    """Return the promise of a whole search: so many trials, each trained `repeats` times.

    Arrays hold one entry a candidate, or, of an adaptive search, one for each that could have been
    chosen. All are priced as the worst of each: the least noise for its clipping norm, the largest
    cohort, the most rounds, so the ε is an upper bound.
    """
    _check(trials, repeats, chosen)
    rest = (sampling, view, noise_last, centred)
    given = terms(privacy, noise, clipping_norm, cohort, clients, rounds, *rest)
    candidates = np.broadcast(given.z, given.ratio, given.rounds).size
    if chosen != "adaptive" and trials < candidates:
        raise SettingError(
            f"trials: must count each of the {candidates} candidates, found {trials}."
        )
    worst = _worst(given)
    T = int(worst.rounds)
    m = float(np.max(np.asarray(cohort)))
    # the noise of each client, in clipping norms, that makes this z
    s = float(worst.z) / float(terms(privacy, 1.0, 1.0, m, clients, T, *rest).z)
    whole = guarantee(
        privacy,
        noise=s,
        clipping_norm=1.0,  # s is counted in clipping norms
        cohort=m,
        clients=clients,
        rounds=T * trials * repeats,
        sampling=sampling,
        view=worst.view,
        noise_last=noise_last,
        centred=centred,
    )
    note = counted_trials(trials, repeats, T, chosen)
    return replace(whole, notes=(note, *whole.notes))


def _check(trials: int, repeats: int, chosen: str) -> None:
    """Refuse counts that are none, and a way of choosing that is not known."""
    for name, value in (("trials", trials), ("repeats", repeats)):
        checked(name, value, int, Rule(at_least=1))
    if chosen not in CHOSEN:
        raise SettingError(f"chosen: must be one of {', '.join(CHOSEN)}, found {chosen!r}.")


def counted_trials(trials: int, repeats: int, rounds: int, chosen: str) -> str:
    """Say what is counted, and why at the worst point."""
    note = f"It counts {trials} trials × {repeats} trainings × {rounds} rounds on private data, "
    if chosen == "adaptive":
        return note + (
            "each priced as the worst point of the search space, because which points are trained "
            "depends on what earlier ones showed; a narrower range costs less."
        )
    return note + (
        "each priced as the worst of them: a fixed number of candidates, all of them shown, costs "
        "what their trainings cost together."
    )


def selection_epsilon(
    privacy: Privacy,
    *,
    noise: ArrayLike,
    clipping_norm: ArrayLike,
    cohort: ArrayLike,
    clients: int,
    rounds: ArrayLike,
    sampling: str,
    trials: int,
    repeats: int = 1,
    view: str | None = None,
    noise_last: bool = True,
    centred: bool = True,
) -> float:
    """Return ε of `selection_guarantee`."""
    return selection_guarantee(
        privacy,
        noise=noise,
        clipping_norm=clipping_norm,
        cohort=cohort,
        clients=clients,
        rounds=rounds,
        sampling=sampling,
        trials=trials,
        repeats=repeats,
        view=view,
        noise_last=noise_last,
        centred=centred,
    ).epsilon


def random_selection_epsilon(
    worst: Terms, mean: float, clients: int, cohort: float, shape: float
) -> float:
    """Return ε of showing the best alone of a random number of trainings.

    By Rényi divergences (Papernot and Steinke 2022).
    """
    import dp_accounting

    event, neighbour = _training(worst, clients, cohort)
    with np.errstate(all="ignore"):
        accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=neighbour)
        accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(event, mean, shape))
        return float(accountant.get_epsilon(float(worst.delta)))


def _training(worst: Terms, clients: int, cohort: float) -> tuple[Any, Any]:
    """Return one training as an event of dp-accounting, and the neighbour it is compared with."""
    import dp_accounting

    relation = dp_accounting.NeighboringRelation
    z = float(worst.z)
    T = int(worst.rounds)
    q = float(worst.ratio)
    sampled = worst.view == "release" and q < 1 and worst.secret
    if sampled and worst.pair == "poisson":
        drawn = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
        return dp_accounting.SelfComposedDpEvent(drawn, T), relation.ADD_OR_REMOVE_ONE
    if sampled and worst.pair == "fixed":
        # the library leaves sensitivity 2c to the caller: z / 2
        drawn = dp_accounting.SampledWithoutReplacementDpEvent(
            round(cohort / q), int(cohort), dp_accounting.GaussianDpEvent(z / 2)
        )
        return dp_accounting.SelfComposedDpEvent(drawn, T), relation.REPLACE_ONE
    return dp_accounting.GaussianDpEvent(float(worst.own())), relation.ADD_OR_REMOVE_ONE


def random_number_note(
    privacy: Privacy, trials: int, repeats: int, **given: Any
) -> tuple[str, ...]:
    """Say what a random number of trials would have cost; nothing where it says nothing new.

    given is what `terms` takes, one entry for each point that could have been drawn. A trial is all
    of its trainings. In the other views every training is seen, whether it is chosen or not.
    """
    worst = _worst(terms(privacy, **given))
    if worst.view != "release" or float(worst.z) == 0 or trials == 1:
        return ()
    whole = replace(worst, rounds=worst.rounds * repeats)
    m = float(np.max(given["cohort"]))
    best, name = min(
        (random_selection_epsilon(whole, trials, given["clients"], m, shape), name)
        for name, shape in SHAPES.items()
    )
    return (
        f"Had the number of trials been random ({name}, mean {trials}) and only the best model "
        f"been shown, ε = {rounded_up(best)} (dp-accounting, Rényi; Papernot and Steinke 2022): "
        "points are independent draws here, each priced as the worst that can be drawn. The score "
        "that it is chosen by must not look at private data again.",
    )


def _worst(given: Terms) -> Terms:
    """Return the least noise, the largest share, the most rounds and the least δ of some terms."""
    return replace(
        given,
        z=_one(np.min(given.z)),
        ratio=_one(np.max(given.ratio)),
        rounds=_one(np.max(given.rounds)),
        delta=_one(np.min(given.delta)),
    )


def _one(value: float) -> FloatArray:
    """Return one number as an array."""
    return np.asarray(value, dtype=np.float64)
