"""Audits: what an attacker really gets of each point on a front.

A family of attacks, one file each. A failed attack proves nothing; what one finds is a lower bound.
"""

from fedpareto.audit.base import Attack, Finding, Points
from fedpareto.audit.canary import Canary
from fedpareto.audit.inversion import Inversion
from fedpareto.audit.membership import Membership
from fedpareto.audit.noise import WhiteBox
from fedpareto.audit.run import Job, Plan, attacks_of, audit, plan

ATTACKS: dict[str, type[Attack]] = {
    "canary": Canary,
    "inversion": Inversion,
    "membership": Membership,
    "noise": WhiteBox,
}

__all__ = [
    "ATTACKS",
    "Attack",
    "Canary",
    "Finding",
    "Inversion",
    "Job",
    "Membership",
    "Plan",
    "Points",
    "WhiteBox",
    "attacks_of",
    "audit",
    "plan",
]
