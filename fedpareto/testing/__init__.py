"""Checks of what optimizers, problems, mechanisms, attacks, executors and the rest must hold.

Each raises AssertionError with what does not hold.
"""

from fedpareto.testing.attacks import check_attack
from fedpareto.testing.executors import check_executor
from fedpareto.testing.functions import Function, continuous, optimize, step
from fedpareto.testing.mechanisms import check_mechanism
from fedpareto.testing.optimizers import check_optimizer
from fedpareto.testing.problems import check_problem
from fedpareto.testing.training import check_loss, check_server

__all__ = [
    "Function",
    "check_attack",
    "check_executor",
    "check_loss",
    "check_mechanism",
    "check_optimizer",
    "check_problem",
    "check_server",
    "continuous",
    "optimize",
    "step",
]
