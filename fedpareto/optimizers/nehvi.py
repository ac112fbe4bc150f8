"""BoTorch's qLogNEHVI (Daulton et al. 2021, Ament et al. 2023), which models every objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.history import History
from fedpareto.noise import derive
from fedpareto.optimizers.composite import telling
from fedpareto.optimizers.improvement import sweep
from fedpareto.optimizers.random import start
from fedpareto.optimizers.surrogate import STEPS, filled, torch_alone
from fedpareto.problem import Problem, judges, reference
from fedpareto.settings import setting
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

PRUNING = 512  # draws by which a point measured is judged never to be on the front
RAW = 64  # points of which the best start each search


@dataclass(frozen=True)
class QLogNehvi:
    """Propose by BoTorch's qLogNEHVI on a Gaussian process per objective, limits as constraints."""

    batch: int = setting(
        5,
        help="points proposed at once; seconds grow with it",
        at_least=1,
        at_most=1000,
        search=False,
    )
    start: int = setting(
        5, help="points drawn before anything is learned", at_least=1, at_most=10_000, search=False
    )
    samples: int = setting(
        32,
        help="draws of what would be measured; seconds grow with them, and so does the precision "
        "of what a point is worth",
        at_least=2,
        at_most=10_000,
        search=False,
    )
    restarts: int = setting(
        2,
        help="starting points of each search for a next point; more are slower and miss the "
        "best less often",
        at_least=1,
        at_most=1000,
        search=False,
    )
    steps: int = setting(
        30,
        help="at most, of each search; fewer are faster and stop short of the best",
        at_least=1,
        at_most=10_000,
        search=False,
    )

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        if len(problem.space) == 0:
            return np.empty((n, 0))
        if len(history) < self.start or history.failed.all():
            return start("sobol", len(problem.space), n, seed, skip=history.asked)
        with torch_alone(derive(seed, "nehvi", len(history))):
            return problem.space.snap(
                self._optimized(problem, history, n, derive(seed, "nehvi", len(history)))
            )

    def _optimized(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        """Return the n points that BoTorch finds, one after another."""
        import torch
        from botorch.optim.optimize import optimize_acqf

        d = len(problem.space)
        told = telling(history)
        acquisition = self._acquisition(
            problem, torch.from_numpy(told.x), torch.from_numpy(-filled(told.judged)), seed
        )
        if len(history.pending):
            acquisition.set_X_pending(torch.from_numpy(history.pending))
        cube = torch.stack([torch.zeros(d), torch.ones(d)]).double()
        points, _ = optimize_acqf(
            acquisition,
            cube,
            n,
            num_restarts=self.restarts,
            raw_samples=RAW,
            sequential=True,
            options={"maxiter": self.steps, "seed": seed % 2**31},
        )
        return np.asarray(points.numpy())

    def _acquisition(self, problem: Problem, x: Tensor, y: Tensor, seed: int) -> Any:
        """Return what a point adds, after y [n,m+c] at x [n,d]; it maximises, so y is negated."""
        import torch
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement
        from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
        from botorch.acquisition.multi_objective.utils import prune_inferior_points_multi_objective
        from botorch.acquisition.objective import GenericMCObjective
        from botorch.sampling.normal import SobolQMCNormalSampler

        sampler = SobolQMCNormalSampler(torch.Size([self.samples]), seed=seed % 2**31)
        limited = [(j, o.limit) for j, o in enumerate(judges(problem)) if o.limit is not None]
        within: list[Callable[[Tensor], Tensor]] | None = [
            partial(_excess, j, limit) for j, limit in limited
        ] or None
        model = _model(x, y)
        if len(problem.objectives) == 1:
            return qLogNoisyExpectedImprovement(
                model, x, sampler, GenericMCObjective(_first), constraints=within
            )
        every = IdentityMCMultiOutputObjective(outcomes=list(range(len(problem.objectives))))
        corner = torch.from_numpy(-reference(problem.objectives))
        hopeful = prune_inferior_points_multi_objective(
            model, x, corner, every, within, num_samples=PRUNING
        )
        return _noisy_ehvi()(model, corner, hopeful, sampler, every, within)


def _excess(j: int, limit: float, z: Tensor) -> Tensor:
    """Return by how much objective or limit j, negated in z [..., m+c], exceeds its limit."""
    return -z[..., j] - limit


def _first(z: Tensor, X: Tensor | None = None) -> Tensor:
    return z[..., 0]


def _model(x: Tensor, y: Tensor) -> Any:
    """Return BoTorch's own choice of process for each column of y [n,m] at x [n,d]."""
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.model_list_gp_regression import ModelListGP
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import SumMarginalLogLikelihood

    model = ModelListGP(
        *(SingleTaskGP(x, column[:, None], outcome_transform=Standardize(1)) for column in y.T)
    )
    fit_gpytorch_mll(
        SumMarginalLogLikelihood(model.likelihood, model),
        optimizer_kwargs={"options": {"maxiter": STEPS}},
    )
    return model


@cache
def _noisy_ehvi() -> Any:
    """Return BoTorch's acquisition function, with the boxes of three objectives by our sweep.

    That is as exact, and takes a tenth of the time.
    """
    import torch
    from botorch.acquisition.multi_objective import logei
    from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
    from botorch.utils.multi_objective.box_decompositions.non_dominated import (
        FastNondominatedPartitioning,
    )

    # BoTorch would compile a kernel on first use, where there is a compiler: points would then
    # differ in their last bits between machines, and a process killed while it compiles leaves a
    # lock that every later one waits for, without end.
    logei._load_attempted = True

    class Swept(FastNondominatedPartitioning):
        def _partition_space(self) -> None:
            if self.num_outcomes == 3:
                self.hypercell_bounds = torch.from_numpy(
                    np.stack(sweep(self.pareto_Y.numpy(), self.ref_point.numpy()))
                )
            else:
                super()._partition_space()  # type: ignore[no-untyped-call]

    class NoisyEhvi(qLogNoisyExpectedHypervolumeImprovement):
        def _set_cell_bounds(self, num_new_points: int) -> None:
            self.p_class = Swept  # type: ignore[assignment]
            super()._set_cell_bounds(num_new_points)

    return NoisyEhvi
