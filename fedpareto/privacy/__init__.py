"""What protection is worth: the papers' leakage formulas, each a named proxy, and true (ε, δ)."""

from fedpareto.contract import VIEWS
from fedpareto.privacy.accounting import Privacy, epsilon, noise_for
from fedpareto.privacy.leakage import (
    gu24_eq2,
    kang23_eq13,
    kang23_eq13_smooth,
    kang23_eq15,
    kang23_eq15_exact,
    xiao25_eq7,
)
from fedpareto.privacy.plan import Planned, plan
from fedpareto.privacy.record_statement import record_guarantee, record_selection_guarantee
from fedpareto.privacy.records import record_epsilon
from fedpareto.privacy.selection import CHOSEN, random_number_note, selection_guarantee
from fedpareto.privacy.statement import (
    Guarantee,
    check,
    delta_text,
    guarantee,
    rounded_up,
    size_remarks,
)

__all__ = [
    "CHOSEN",
    "VIEWS",
    "Guarantee",
    "Planned",
    "Privacy",
    "check",
    "delta_text",
    "epsilon",
    "gu24_eq2",
    "guarantee",
    "kang23_eq13",
    "kang23_eq13_smooth",
    "kang23_eq15",
    "kang23_eq15_exact",
    "noise_for",
    "plan",
    "random_number_note",
    "record_epsilon",
    "record_guarantee",
    "record_selection_guarantee",
    "rounded_up",
    "selection_guarantee",
    "size_remarks",
    "xiao25_eq7",
]
