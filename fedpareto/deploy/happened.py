"""What every round of a ledger really cost, against what it was planned to cost.

A cost is counted in planned rounds: noise of z times the norm where z₀ times was planned costs
(z₀ / z)², since rounds with Gaussian noise hide as one does with z₀ over the root of their costs.
No round costs less than planned: the plan counts a client that takes part in every one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from fedpareto.contract import FLOAT32, Round, on_the_sum, share_of_noise
from fedpareto.deploy.rows import Attempt, Id

ROUNDING = 1e-12  # of a cost that is a planned round's but for rounding
SAME = 1e-6  # by how much noise may differ and still tell nobody's presence


@dataclass(frozen=True)
class Planned:
    """What a round of one view was planned to be."""

    contract: Round
    z: float  # noise over norm of what is seen
    alone: bool  # whether each upload is seen, or only its own noise counts
    dropouts: int
    colluders: int
    server_side: bool = True  # whether the whole cohort is on record

    def own(self, asked: int) -> float:
        """Return the noise of each client where so many are asked."""
        if self.contract.sampling == "fixed":
            return float(self.contract.noise)
        return float(self.contract.noise * share_of_noise(self.contract.cohort, max(asked, 1)))

    def cost(self, noise: float, norm: float | None) -> float:
        """Return what noise on what is seen costs."""
        norm = self.contract.norm if norm is None else norm
        if noise == 0:
            return math.inf
        cost = float(self.z * norm * FLOAT32 / noise) ** 2
        return 1.0 if cost <= 1 + ROUNDING else cost


@dataclass(frozen=True)
class Spent:
    """What one round cost."""

    round: int
    cost: float  # at least 1
    secret: bool  # whether who took part is as secret as planned


def spent(plan: Planned, attempts: Iterable[Attempt]) -> list[Spent]:
    """Return what each round cost that was begun, in order."""
    by_round = sorted(attempts, key=lambda one: (one.round, one.attempt))
    return [_spent(plan, t, tuple(of)) for t, of in groupby(by_round, key=lambda one: one.round)]


def _spent(plan: Planned, t: int, attempts: Sequence[Attempt]) -> Spent:
    """Return what all attempts at a round cost together."""
    shown = [one for one in attempts if not _same_again(one, attempts)]
    secret = len(shown) == 1 and not unplanned(plan, shown[0])
    each = uploads(plan, attempts)
    mixed = len(shown) > 1 and any(one.again for one in attempts)
    if plan.alone or mixed:  # two sums with the same uploads tell single ones: their difference
        totals = [math.fsum(costs) for costs in each.values()]
    else:
        sums = [(set(_summed(one)), _cost_of_sum(plan, one)) for one in shown]
        totals = [math.fsum(cost for of, cost in sums if client in of) for client in each]
    return Spent(t, max([1.0, *totals]), secret)


def _same_again(one: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Say whether an attempt was repeated with the very same uploads of the very same clients.

    Both sums are then one, unless the server added noise, which two draws lessen. Of an attempt
    that never ended, everybody may have answered.
    """
    return any(
        later.ended
        and later.attempt > one.attempt
        and set(later.asked) == set(one.asked)
        and set(later.answered) == set(later.again) == set(_summed(one))
        and (not later.answered or one.server_noise == later.server_noise == 0)
        for later in attempts
    )


def uploads(plan: Planned, attempts: Sequence[Attempt]) -> dict[Id, list[float]]:
    """Return what each upload of each client cost, seen alone.

    A client that was asked and is not known to have answered may have sent something.
    """
    found: dict[Id, list[float]] = {}
    for one in attempts:
        noise = dict(zip(one.answered, one.noise or (), strict=False))
        contract = plan.own(len(one.asked))
        for client in one.asked:
            cost = plan.cost(noise.get(client, contract), one.norm)
            costs = found.setdefault(client, [])
            if client in one.again and costs:
                costs[-1] = max(costs[-1], cost)
            else:
                costs.append(cost)
    return found


def _summed(one: Attempt) -> tuple[Id, ...]:
    """Return who is in the sum of an attempt, or may be."""
    return one.answered if one.ended else one.asked


def _cost_of_sum(plan: Planned, one: Attempt) -> float:
    """Return what the sum of an attempt cost; of one that never ended, as if all had answered."""
    noise = one.noise if one.ended else None
    if noise is None:
        noise = (plan.own(len(one.asked)),) * len(_summed(one))
    counted = sorted(noise)[: max(1, len(noise) - plan.colluders)]  # the client to hide is none
    return plan.cost(math.sqrt(math.fsum(s * s for s in (*counted, one.server_noise))), one.norm)


def unplanned(plan: Planned, one: Attempt) -> list[str]:
    """Return in words what of an attempt was not as planned, or may tell who took part."""
    contract = plan.contract
    found = []
    if contract.sampling == "fixed" and plan.server_side and len(one.asked) != contract.cohort:
        found.append(f"{len(one.asked)} were asked, {contract.cohort:g} were planned")
    if not one.ended:
        return found
    missing = len(one.asked) - len(one.answered)
    if missing > plan.dropouts:
        found.append(f"{missing} of {len(one.asked)} did not answer, {plan.dropouts} were planned")
    if one.norm is not None and one.norm > contract.norm:
        found.append(f"the norm was {one.norm:g}, {contract.norm:g} was planned")
    return found + _of_noise(plan, one) + _of_sum(plan, one)


def _of_noise(plan: Planned, one: Attempt) -> list[str]:
    """Say whether clients added other noise than the contract's."""
    if not one.noise:
        return []
    wanted = plan.own(len(one.asked))
    other = [s for s in one.noise if not math.isclose(s, wanted, rel_tol=SAME)]
    if not other:
        return []
    return [f"{len(other)} clients added noise of {min(other):g} or more, {wanted:g} was planned"]


def _of_sum(plan: Planned, one: Attempt) -> list[str]:
    """Say whether the server divided by, or added, something else than the contract has."""
    contract = plan.contract
    if contract.sampling == "fixed" or not plan.server_side:
        return []
    found = []
    if one.divisor is None or not math.isclose(one.divisor, contract.cohort, rel_tol=SAME):
        found.append(f"the divisor was {one.divisor}, {contract.cohort:g} was planned")
    wanted = 0.0
    if not one.asked and contract.noise is not None:  # such a round must look like any other
        wanted = float(on_the_sum(contract.noise, contract.cohort, contract.sampling))
    if not math.isclose(one.server_noise, wanted, rel_tol=SAME):
        found.append(f"the server added noise of {one.server_noise:g}, {wanted:g} was planned")
    return found
