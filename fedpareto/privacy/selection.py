"""What the search itself costs: every candidate trained on private data, and one chosen.

A study trains a fixed number of candidates and shows them all, so the costs of their trainings add
up. Had the number been drawn at random and the best alone been shown, choosing would cost little
(Liu and Talwar 2019; Papernot and Steinke 2022); that ε is given beside it.
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
) -> Guarantee:
    """Return the promise of a whole search: so many trials, each trained `repeats` times.

    Arrays hold one entry a candidate. All are priced as the worst of each: the least noise for its
    clipping norm, the largest cohort, the most rounds, so the ε is an upper bound.
    """
    for name, value in (("trials", trials), ("repeats", repeats)):
        checked(name, value, int, Rule(at_least=1))
    given = terms(
        privacy, noise, clipping_norm, cohort, clients, rounds, sampling, view, noise_last, centred
    )
    candidates = np.broadcast(given.z, given.ratio, given.rounds).size
    if trials < candidates:
        raise SettingError(
            f"trials: must count each of the {candidates} candidates, found {trials}."
        )
    trainings = trials * repeats
    T = int(np.max(given.rounds))
    ratio = float(np.max(given.ratio))
    z = float(np.min(given.z))
    worst = replace(given, z=_one(z), ratio=_one(ratio), rounds=_one(T))
    m = float(np.max(np.asarray(cohort)))
    # the noise of each client, in clipping norms, that makes this z
    unit = terms(privacy, 1.0, 1.0, m, clients, T, sampling, given.view, noise_last, centred)
    s = z / float(unit.z)
    whole = guarantee(
        privacy,
        noise=s,
        clipping_norm=1.0,  # s is counted in clipping norms
        cohort=m,
        clients=clients,
        rounds=T * trainings,
        sampling=sampling,
        view=given.view,
        noise_last=noise_last,
        centred=centred,
    )
    notes = (
        f"It counts {trials} trials × {repeats} trainings × {T} rounds on private data, each "
        "priced as the worst: a fixed number of candidates, all of them shown, costs what their "
        "trainings cost together.",
        *_at_random(worst, trainings, clients, m),
    )
    return replace(whole, notes=notes + whole.notes)


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
            clients, int(cohort), dp_accounting.GaussianDpEvent(z / 2)
        )
        return dp_accounting.SelfComposedDpEvent(drawn, T), relation.REPLACE_ONE
    return dp_accounting.GaussianDpEvent(float(worst.own())), relation.ADD_OR_REMOVE_ONE


def _at_random(worst: Terms, trainings: int, clients: int, cohort: float) -> tuple[str, ...]:
    """Say what a random number of trainings would have cost; nothing where it says nothing new.

    In the other views every training is seen, whether it is chosen or not.
    """
    if worst.view != "release" or float(worst.z) == 0 or trainings == 1:
        return ()
    strictest = replace(worst, delta=_one(float(np.min(worst.delta))))
    best, name = min(
        (random_selection_epsilon(strictest, trainings, clients, cohort, shape), name)
        for name, shape in SHAPES.items()
    )
    return (
        f"Had the number of trainings been random ({name}, mean {trainings}) and only the best "
        f"model been shown, ε = {rounded_up(best)} (dp-accounting, Rényi), "
        "if the score it is chosen by does not look at private data again.",
    )


def _one(value: float) -> FloatArray:
    """Return one number as an array."""
    return np.asarray(value, dtype=np.float64)
