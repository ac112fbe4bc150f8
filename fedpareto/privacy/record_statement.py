"""A promise for one record, or for the records of one person, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedpareto.contract import Records, Uses, by_chance
from fedpareto.privacy.accounting import Privacy, Terms
from fedpareto.privacy.loss import PRECISE
from fedpareto.privacy.records import pair_of, person_epsilon, worst_uses
from fedpareto.privacy.selection import counted_trials
from fedpareto.privacy.statement import Guarantee, delta_text, priced, size_remarks
from fedpareto.space import FloatArray

ALONE = (
    "Only the noise of a client's own local steps is counted, in every view: not that of other "
    "clients in a sum, nor that a client may stay out of a round."
)
KNOWN = (
    "How many records each client holds is taken to be known: a record's chance to be in a step "
    "follows from it. Which records are in a step must stay secret."
)
KNOWN_SIZE = "How many records each client holds is taken to be known."
PERSON = "A person is taken to have one record: whoever has more is covered less."


def record_guarantee(
    privacy: Privacy,
    records: Records,
    *,
    rounds: int,
    clients: int,
    cohort: float,
    sampling: str,
    people: int,
) -> Guarantee:
    """Return the promise of one setting, of clients that hold so many records together."""
    delta = privacy.delta(people)
    uses = worst_uses(privacy, records, rounds, delta)
    noise = float(np.max(records.seen_noise))
    found = _stated(privacy, noise, uses, records.batches, rounds, delta, people)
    return replace(found, clients=clients, cohort=cohort, sampling=sampling)


def record_selection_guarantee(
    privacy: Privacy,
    records: Records,
    *,
    rounds: FloatArray,
    clients: int,
    cohort: float,
    sampling: str,
    people: int,
    trials: int,
    repeats: int,
    chosen: str,
) -> Guarantee:
    """Return the promise of a whole search: so many trials, each trained `repeats` times.

    Arrays hold one entry a candidate; all are priced as the worst of each.
    """
    delta = privacy.delta(people)
    every = records.uses()
    worst = Uses(
        min(uses.size for uses in every),
        max(float(np.max(uses.ratio)) for uses in every),
        max(int(np.max(uses.times)) for uses in every),
    )
    noise = float(np.min(records.seen_noise))
    T = int(np.max(rounds))
    found = _stated(privacy, noise, worst, records.batches, T * trials * repeats, delta, people)
    note = counted_trials(trials, repeats, T, chosen)
    notes = (note, *found.notes)
    return replace(found, clients=clients, cohort=cohort, sampling=sampling, notes=notes)


def _stated(
    privacy: Privacy, z: float, uses: Uses, batches: str, rounds: int, delta: float, people: int
) -> Guarantee:
    """Return what noise of z times the norm on every step promises a record that is used so."""
    ratio = float(np.max(uses.ratio))
    steps = int(np.max(uses.times))
    epsilon, accountant, comparison = _priced(privacy, z, ratio, rounds * steps, delta)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        adjacency=privacy.adjacency,
        sampling="fixed",
        view=privacy.view,
        accountant=accountant,
        clients=0,
        cohort=0,
        rounds=rounds,
        noise_multiplier=z,
        notes=tuple(_notes(privacy, batches, people, delta, comparison, epsilon)),
        counted=_counted(uses.size, ratio, steps, batches),
        differs=_differs(privacy),
    )


def _priced(
    privacy: Privacy, z: float, ratio: float, steps: int, delta: float
) -> tuple[float, str, Sequence[str]]:
    """Return ε, the accountant it comes from, and what another says."""
    pair, people = pair_of(privacy), privacy.records_per_person
    if people > 1:
        found = person_epsilon(z, ratio, steps, delta, pair, people, PRECISE)
        return found, "PLD, connect-the-dots (fedpareto), of groups", ()
    given = Terms(
        z=np.asarray(z),
        ratio=np.asarray(ratio),
        rounds=np.asarray(float(steps)),
        delta=np.asarray(delta),
        view="release",  # which records are in a step is as secret as who comes there
        pair=pair,
        replace=privacy.adjacency == "replace",
    )
    return priced(given, delta)


def _counted(size: int, ratio: float, steps: int, batches: str) -> str:
    """Return what a round is, in words."""
    plural = "s" if steps > 1 else ""
    if not by_chance(batches):
        passes = f"{steps} pass{'es' if steps > 1 else ''}"
        return f"{passes} of a client over its records, each once in a pass (shuffled batches)"
    every = f"{steps} local step{plural} of a client"
    if ratio == 1:
        return f"{every}, with all of its records in every step"
    return (
        f"{every} with {size:,} records, each in a step by a chance of its own of {ratio:.4g} "
        "(poisson batches)"
    )


def _differs(privacy: Privacy) -> str:
    """Return what may differ, where it is more than one record."""
    people = privacy.records_per_person
    if people == 1:
        return ""
    way = "left out" if privacy.adjacency == "zero_out" else "replaced by any others"
    return f"whether or not up to {people} records of one person at one client are {way}"


def _notes(
    privacy: Privacy,
    batches: str,
    people: int,
    delta: float,
    comparison: Sequence[str],
    epsilon: float,
) -> list[str]:
    """Return what must hold for the promise to hold, and what a reader should know about it."""
    found = [ALONE, KNOWN if by_chance(batches) else KNOWN_SIZE, *comparison]
    if privacy.records_per_person == 1:
        found.append(PERSON)
    if delta * people >= 1:
        found.append(
            f"δ = {delta_text(delta)} is not below 1/records = {1 / people:.3g}: giving away one "
            f"record whole would still hold it. Ask for at most {0.1 / people:.2g}."
        )
    return found + size_remarks(epsilon)
