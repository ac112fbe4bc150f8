"""What the search itself costs: every candidate trained on private data, and one chosen.

A study trains a fixed number of candidates and shows them all, so their trainings compose. Had the number been drawn at
random and the best alone been shown, choosing would cost little (Liu and Talwar 2019; Papernot and Steinke 2022); that ε
is given beside it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.errors import SettingError
from fedpareto.privacy.accounting import Guarantee, Privacy, Terms, guarantee, rounded_up, terms
from fedpareto.space import FloatArray

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
) -> Guarantee:
    """Return the promise of a whole search of so many trials, each trained `repeats` times on private data.

    Arrays hold one entry a candidate. All are priced as the worst of each: the least noise for its clipping norm, the
    largest cohort, the most rounds, so the ε is an upper bound.
    """
    for name, value in (("trials", trials), ("repeats", repeats)):
        if value != int(value) or value < 1:
            raise SettingError(f"{name}: must be whole and at least 1, found {value!r}.")
    given = terms(privacy, noise, clipping_norm, cohort, clients, rounds, sampling, view)
    trainings, T, ratio, z = (
        trials * repeats,
        int(np.max(given.rounds)),
        float(np.max(given.ratio)),
        float(np.min(given.z)),
    )
    worst = replace(given, z=_one(z), ratio=_one(ratio), rounds=_one(T))
    m = round(ratio * clients) if sampling == "fixed" else ratio * clients
    lost = 0 if given.view == "server" else privacy.dropouts + privacy.colluders
    s = z if given.view == "server" else z / math.sqrt(m - lost)  # at clipping norm 1
    whole = guarantee(
        privacy,
        noise=s,
        clipping_norm=1.0,
        cohort=m,
        clients=clients,
        rounds=T * trainings,
        sampling=sampling,
        view=given.view,
    )
    notes = (
        f"It counts {trials} trials × {repeats} trainings × {T} rounds on private data, each priced as the worst: a fixed number of "
        "candidates, all of them shown, costs what their trainings cost together.",
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
    ).epsilon


def random_selection_epsilon(
    worst: Terms, mean: float, clients: int, cohort: float, shape: float
) -> float:
    """Return ε of showing the best alone of a random number of trainings, by Rényi divergences (Papernot and Steinke 2022)."""
    import dp_accounting

    relation = dp_accounting.NeighboringRelation
    z, T, q = float(worst.z), int(worst.rounds), float(worst.ratio)
    kind, event = relation.ADD_OR_REMOVE_ONE, dp_accounting.GaussianDpEvent(float(worst.own()))
    if worst.view == "release" and q < 1 and worst.pair == "poisson":
        event = dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z)), T
        )
    elif (
        worst.view == "release" and q < 1 and worst.pair == "fixed"
    ):  # the library leaves sensitivity 2c to the caller: z / 2
        drawn = dp_accounting.SampledWithoutReplacementDpEvent(
            clients, int(cohort), dp_accounting.GaussianDpEvent(z / 2)
        )
        kind, event = relation.REPLACE_ONE, dp_accounting.SelfComposedDpEvent(drawn, T)
    with np.errstate(all="ignore"):
        accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=kind)
        accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(event, mean, shape))
        return float(accountant.get_epsilon(float(worst.delta)))


def _at_random(worst: Terms, trainings: int, clients: int, cohort: float) -> tuple[str, ...]:
    if (
        worst.view != "release" or float(worst.z) == 0 or trainings == 1
    ):  # the others see every training, chosen or not
        return ()
    delta = replace(worst, delta=_one(float(np.min(worst.delta))))
    best, name = min(
        (random_selection_epsilon(delta, trainings, clients, cohort, shape), name)
        for name, shape in SHAPES.items()
    )
    return (
        f"Had the number of trainings been random ({name}, mean {trainings}) and only the best model been shown, "
        f"ε = {rounded_up(best)} (dp-accounting, Rényi), if the score it is chosen by does not look at private data again.",
    )


def _one(value: float) -> FloatArray:
    return np.asarray(value, dtype=np.float64)
