"""What trials are held against: the best constant answer, and the federation unprotected."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.federation import blocks
from fedpareto.federation.data import Dataset, load
from fedpareto.federation.local import ClipsRecords, Sgd
from fedpareto.federation.models import Lr
from fedpareto.federation.setup import Setup
from fedpareto.mechanisms import Unprotected
from fedpareto.privacy import Privacy

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.problem import Federation

RARE = 1e-9  # in place of a share of 0, whose logarithm is no number


def unprotected(problem: Federation) -> Federation | None:
    """Return the federation without its mechanism, measured by what judges models.

    None where nothing protects it, or where data are private: a training without noise would show
    what the study is to hide.
    """
    clips = isinstance(problem.local, ClipsRecords)
    if problem.private or (isinstance(problem.mechanism, Unprotected) and not clips):
        return None
    known = problem.measures
    judging = [o for o in problem.objectives if known[o.measure].source == "models"]
    goals = tuple(dataclasses.replace(o, limit=None) for o in judging)
    return dataclasses.replace(
        problem,
        mechanism=Unprotected(),
        limits=(),
        local=Sgd() if clips else problem.local,
        privacy=Privacy(),
        objectives=goals,
        block=1,
    )


def trivial(problem: Federation, seeds: Sequence[int]) -> list[dict[str, float]]:
    """Return what the best constant answer gives in each of these repeats.

    It answers every input with the shares of the classes among the test labels, so always with the
    most frequent class, or with their mean where numbers are predicted. It learns nothing of what
    clients hold.
    """
    return [_constant(problem, blocks.setup_of(problem, seed)) for seed in seeds]


def _constant(problem: Federation, setup: Setup) -> dict[str, float]:
    from fedpareto.federation.judge import Judge
    from fedpareto.federation.losses import loss_of
    from fedpareto.federation.stack import stack_of

    data = load(problem.data)
    module = setup.module(Lr())
    stack = stack_of(Lr(), module, data.shape, data.classes)
    weights = [0 * p for p in stack.initial[:1]]
    loss = loss_of(problem.training.loss)
    own = tuple(n for n in problem.own_measures)
    judge = Judge.of(data, [setup.test_split()], 1, "cpu", loss, own)
    params = [p[None] for p in (*weights, _answer(data))]
    try:
        found = judge(stack, params)
    except Exception:  # a measure of the user's own that is not defined for a constant answer
        found = dataclasses.replace(judge, own=())(stack, params)
    names = {"test_error": "error", "test_loss": "loss"}
    for case in ("worst", "equal"):
        names |= {f"test_error_{case}": f"{case}_error", f"test_loss_{case}": f"{case}_loss"}
    figures = {name: found[figure] for name, figure in names.items()}
    figures |= {name: found[name] for name in own if name in found}
    return {name: float(figure[0]) for name, figure in figures.items()}


def _answer(data: Dataset) -> Tensor:
    """Return the scores [C] of the answer that is always the same."""
    import torch

    if data.numbers:
        return torch.tensor([float(np.mean(data.y_test))])
    shares = np.bincount(data.y_test, minlength=data.classes) / len(data.y_test)
    return torch.from_numpy(np.log(np.maximum(shares, RARE))).float()
