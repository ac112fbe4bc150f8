"""What hides one record of a client: noise on every local step (DP-SGD inside each client).

The ε is that of all local steps of all rounds of a client, the one whose records are drawn most. It
holds for whoever looks on, since uploads and models follow from the steps.

Letters: z is the noise on a step over what one record moves, q a record's chance to be in it, T the
steps, g the records of one person.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedpareto.contract import Records, Uses
from fedpareto.privacy.accounting import Privacy
from fedpareto.privacy.gaussian import least_multiplier
from fedpareto.privacy.loss import FAST, release_epsilon, release_multiplier
from fedpareto.space import FloatArray

HALVINGS = 40


def record_epsilon(
    privacy: Privacy, records: Records, rounds: FloatArray, delta: float, accuracy: float = FAST
) -> FloatArray:
    """Return ε of one record, or of one person's, over so many rounds [n], rounded up."""
    found = [_of(privacy, records, uses, rounds, delta, accuracy) for uses in records.uses()]
    return np.asarray(np.max(np.broadcast_arrays(*found), axis=0))


def worst_uses(privacy: Privacy, records: Records, rounds: int, delta: float) -> Uses:
    """Return how records are used by the clients whose ε is the largest, of one setting."""

    def price(uses: Uses) -> float:
        return float(np.max(_of(privacy, records, uses, np.array([rounds]), delta, FAST)))

    return max(records.uses(), key=price)


def person_epsilon(
    z: float, q: float, T: int, delta: float, pair: str, people: int, accuracy: float = FAST
) -> float:
    """Return ε of so many records of one person, all of one client, rounded up.

    The lesser of two bounds: what any mechanism promises of groups, by their records one after
    another (Vadhan 2017, Lemma 2.2); and, for records left out, a person who is in a step with the
    chance that one of the records is, and then with all of them.
    """
    if people == 1:
        return float(release_epsilon(z, q, T, delta, pair, accuracy))
    found = _one_after_another(z, q, T, delta, pair, people, accuracy)
    if pair == "poisson" or q == 1:
        met = min(1.0, -math.expm1(people * math.log1p(-q)) * (1 + 1e-15)) if q < 1 else 1.0
        found = min(found, float(release_epsilon(z / people, met, T, delta, pair, accuracy)))
    return found


def record_multiplier(
    epsilon: float, ratio: float, steps: int, delta: float, pair: str, people: int = 1
) -> float:
    """Return the least noise multiplier that holds ε over so many steps, rounded up."""
    one = release_multiplier(epsilon, ratio, steps, delta, pair)
    if people == 1:
        return one

    def holds(z: float) -> bool:
        return person_epsilon(z, ratio, steps, delta, pair, people) <= epsilon

    enough = one
    while not holds(enough):
        enough *= 2
    return least_multiplier(holds, enough)


def pair_of(privacy: Privacy) -> str:
    """Return which neighbours differ: a record left out, or another in its place."""
    return "poisson" if privacy.adjacency == "zero_out" else "poisson_replace"


def _of(
    privacy: Privacy,
    records: Records,
    uses: Uses,
    rounds: FloatArray,
    delta: float,
    accuracy: float,
) -> FloatArray:
    """Return ε [n] of clients that use their records so."""
    given = (records.seen_noise, uses.ratio, rounds * uses.times)
    rows = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in given))
    pair, people = pair_of(privacy), privacy.records_per_person
    if people == 1:
        z, q, T = rows
        return release_epsilon(z, q, T, delta, pair, accuracy)
    columns = zip(*(row.ravel().tolist() for row in rows), strict=True)
    found = [person_epsilon(a, b, int(c), delta, pair, people, accuracy) for a, b, c in columns]
    return np.array(found).reshape(rows[0].shape)


@lru_cache(maxsize=20_000)
def _one_after_another(
    z: float, q: float, T: int, delta: float, pair: str, people: int, accuracy: float
) -> float:
    """Return g times the least ε₁ whose δ₁ = δ (e^ε₁ − 1) / (e^{g ε₁} − 1) the mechanism keeps."""

    def holds(one: float) -> bool:
        if one * people > 600:  # δ₁ is no number any more
            return False
        allowed = delta * math.expm1(one) / math.expm1(people * one) * (1 - 1e-12)
        return bool(release_epsilon(z, q, T, allowed, pair, accuracy) <= one)

    low, high = 0.0, 1e-6
    while not holds(high):
        low, high = high, 2 * high
        if high * people > 600:
            return math.inf
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return people * high * (1 + 1e-12)
