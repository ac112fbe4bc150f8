"""Theory that saves trainings (Gu 2024): Pareto sets in closed form, and low-cost design."""

from fedpareto.theory.design import Design, design, ratio_of, rounds_within, settings_of
from fedpareto.theory.estimate import Estimate, estimate_k, interior
from fedpareto.theory.law import (
    Band,
    band,
    case,
    is_pareto,
    objectives,
    pareto_set,
    printed_set,
    sigma_of,
)
from fedpareto.theory.problem import ClosedForm
from fedpareto.theory.search import (
    Found,
    Runs,
    Spending,
    full_grid,
    law_cost,
    until_convergence,
    with_budget,
)

__all__ = [
    "Band",
    "ClosedForm",
    "Design",
    "Estimate",
    "Found",
    "Runs",
    "Spending",
    "band",
    "case",
    "design",
    "estimate_k",
    "full_grid",
    "interior",
    "is_pareto",
    "law_cost",
    "objectives",
    "pareto_set",
    "printed_set",
    "ratio_of",
    "rounds_within",
    "settings_of",
    "sigma_of",
    "until_convergence",
    "with_budget",
]
