"""Threads: proposals in one defined numeric state, training without threads that spin."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # either says how OpenMP's threads wait


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait; OpenMP reads this once, when torch is loaded.

    By default they spin. On a busy machine each wait then costs a slice of the scheduler's time,
    and training has been seen to take twenty times as long.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    elif not any(name in os.environ for name in WAITING):
        _loaded_too_early.append(True)


_loaded_too_early: list[bool] = []  # filled where torch was there before fedpareto
_warned: list[bool] = []


def training_threads() -> int:
    """Return how many threads a large training may use: one where others would spin."""
    import torch

    if not _loaded_too_early:
        return torch.get_num_threads()
    if torch.get_num_threads() > 1 and not _warned:
        _warned.append(True)
        logging.getLogger("fedpareto").warning(
            "training uses one thread: torch was imported before fedpareto, so its threads would "
            "spin while they wait. Import fedpareto first, or set OMP_WAIT_POLICY=PASSIVE."
        )
    return 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, in torch and in every other library, and then go on as before.

    Sums of floating-point numbers depend on how many threads share them, and torch's own state
    depends on whether something was trained before: without this, a process that trained would
    propose other points than a fresh one.
    """
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
