"""Checks of what an optimizer, a problem or a mechanism must hold, ours or your own.

Each raises AssertionError with what does not hold.
"""

from fedpareto.testing.functions import Function, continuous, optimize, step
from fedpareto.testing.mechanisms import check_mechanism
from fedpareto.testing.optimizers import check_optimizer
from fedpareto.testing.problems import check_problem

__all__ = [
    "Function",
    "check_mechanism",
    "check_optimizer",
    "check_problem",
    "continuous",
    "optimize",
    "step",
]
