"""BoTorch's qLogNEHVI (Daulton et al. 2021, Ament et al. 2023): a peer that models every objective, known or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.history import History
from fedpareto.noise import derive
from fedpareto.optimizers.random import start
from fedpareto.optimizers.surrogate import filled, torch_alone
from fedpareto.problem import Problem, reference
from fedpareto.settings import setting
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class QLogNehvi:
    """Propose by BoTorch's qLogNEHVI on a Gaussian process per objective, limits as outcome constraints."""

    batch: int = setting(5, help="points proposed at once", at_least=1, at_most=1000, search=False)
    start: int = setting(5, help="points drawn before anything is learned", at_least=1, at_most=10_000, search=False)
    samples: int = setting(32, help="draws of what would be measured", at_least=2, at_most=10_000, search=False)
    restarts: int = setting(2, help="starting points of each search for a next point", at_least=1, at_most=1000, search=False)
    steps: int = setting(30, help="at most, of each search", at_least=1, at_most=10_000, search=False)

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        if len(problem.space) == 0:
            return np.empty((n, 0))
        if len(history) < self.start or history.failed.all():
            return start("sobol", len(problem.space), n, seed, skip=len(history))
        with torch_alone(derive(seed, "nehvi", len(history))):
            return problem.space.snap(self._optimized(problem, history, n, derive(seed, "nehvi", len(history))))

    def _optimized(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        """Return the n points that BoTorch finds, one after another."""
        import torch
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement
        from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement as NoisyEhvi
        from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
        from botorch.acquisition.objective import GenericMCObjective
        from botorch.optim.optimize import optimize_acqf
        from botorch.sampling.normal import SobolQMCNormalSampler

        d, m = len(problem.space), len(problem.objectives)
        x, y = torch.from_numpy(history.x), torch.from_numpy(-filled(history.y))  # it maximises
        sampler = SobolQMCNormalSampler(torch.Size([self.samples]), seed=seed % 2**31)
        limited = [(j, o.limit) for j, o in enumerate(problem.objectives) if o.limit is not None]
        within: list[Callable[[Tensor], Tensor]] = [partial(_excess, j, limit) for j, limit in limited]
        model, corner = _model(x, y), torch.from_numpy(-reference(problem.objectives))
        acquisition: Any
        if m > 1:
            every = IdentityMCMultiOutputObjective(outcomes=list(range(m)))
            acquisition = NoisyEhvi(model, corner, x, sampler, every, within or None, prune_baseline=True, cache_root=False)
        else:
            only = GenericMCObjective(_first)
            acquisition = qLogNoisyExpectedImprovement(model, x, sampler, only, constraints=within or None, cache_root=False)
        cube = torch.stack([torch.zeros(d), torch.ones(d)]).double()
        points, _ = optimize_acqf(acquisition, cube, n, num_restarts=self.restarts, raw_samples=64, sequential=True,
                                  options={"maxiter": self.steps, "seed": seed % 2**31})
        return np.asarray(points.numpy())


def _excess(j: int, limit: float, z: Tensor) -> Tensor:
    """Return by how much objective j, negated in z [..., m], exceeds its limit."""
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

    model = ModelListGP(*(SingleTaskGP(x, column[:, None], outcome_transform=Standardize(1)) for column in y.T))
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    return model
