"""Gaussian processes over the unit cube, one for each objective that has to be learned."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import scipy
from numpy.typing import NDArray

from fedpareto.noise import derive
from fedpareto.space import Choice, FloatArray, Space, Variable
from fedpareto.threads import one_thread

EDGE = 1e-7  # BoTorch keeps away from 0 and 1
STEPS = 75  # of the search for length scales
ROWS = 250  # at most, that the search looks at; the process itself rests on all


@contextlib.contextmanager
def torch_alone(seed: int) -> Iterator[None]:
    """Seed torch for a while, quietly, on one thread, and leave its global generator as it was."""
    import torch

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")  # BoTorch and GPyTorch warn of retries and jitter
        torch.manual_seed(derive(seed, "torch"))
        yield


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A Gaussian process of one objective, with noise.

    It has a Matérn 5/2 covariance, one length scale per variable, and a constant mean.
    """

    space: Space
    inputs: FloatArray  # [n,f] features
    targets: FloatArray  # [n], standardised
    lengths: FloatArray  # [f]
    height: float  # variance of the process
    mean: float
    variance: float  # of the noise, where the mean of most trainings was measured
    centre: float
    scale: float
    bends: tuple[FloatArray, FloatArray] | None = None  # [f] and [f], how each input is warped
    share: FloatArray | None = None  # [n], trainings of each row as a share of the most, else all 1

    @property
    def noise(self) -> float:
        """The standard deviation of one measurement, of most trainings where they differ."""
        return self.scale * float(np.sqrt(self.variance))

    def covariance(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Return the Matérn 5/2 covariance [n,k] of features a [n,f] and b [k,f]."""
        r = np.sqrt(5.0) * scipy.spatial.distance.cdist(a / self.lengths, b / self.lengths)
        return np.asarray(self.height * (1 + r + r * r / 3) * np.exp(-r))

    @cached_property
    def root(self) -> FloatArray:
        """The lower triangular root [n,n] of the covariance of what was measured."""
        noise = self.variance if self.share is None else self.variance / self.share
        noisy = self.covariance(self.inputs, self.inputs) + (noise + 1e-8) * np.eye(
            len(self.inputs)
        )
        return np.asarray(scipy.linalg.cholesky(noisy, lower=True))

    @cached_property
    def weights(self) -> FloatArray:
        """What each measurement adds to the mean, [n], per unit of covariance."""
        return np.asarray(scipy.linalg.cho_solve((self.root, True), self.targets - self.mean))

    @cached_property
    def precision(self) -> FloatArray:
        """The inverse [n,n] of the covariance of what was measured."""
        return np.asarray(scipy.linalg.cho_solve((self.root, True), np.eye(len(self.root))))

    def features(self, x: FloatArray) -> FloatArray:
        """Return the inputs [k,f] that stand for x [k,d]."""
        return (
            features(self.space, x)
            if self.bends is None
            else warped(features(self.space, x), *self.bends)
        )

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean [k] and standard deviation [k] of the noiseless objective at x [k,d]."""
        across = self.covariance(self.inputs, self.features(x))
        explained = scipy.linalg.solve_triangular(self.root, across, lower=True)
        left = np.maximum(self.height - (explained**2).sum(axis=0), 1e-12)
        return self.centre + self.scale * (
            self.mean + across.T @ self.weights
        ), self.scale * np.sqrt(left)

    def believe(self, x: FloatArray) -> Surrogate:
        """Return the process as if its mean had been measured at x [k,d], by most trainings."""
        z = (self.predict(x)[0] - self.centre) / self.scale
        share = None if self.share is None else np.concatenate([self.share, np.ones(len(x))])
        return replace(
            self,
            inputs=np.vstack([self.inputs, self.features(x)]),
            targets=np.concatenate([self.targets, z]),
            share=share,
        )


def fit(
    space: Space,
    x: FloatArray,
    y: FloatArray,
    noise: bool = True,
    warp: bool = False,
    runs: NDArray[np.int64] | None = None,
) -> Surrogate:
    """Fit a process to y [n] at x [n,d] by maximum a posteriori.

    Without noise it passes through every value. Each value is the mean of as many trainings as
    runs [n] says: the fewer, the more noise it has and the less it weighs. With warp it also learns
    how to bend each axis (Snoek et al. 2014), for variables that matter near one end of their
    range only.
    """
    centre = float(y.mean())
    spread = float(y.std())
    level = spread <= 1e-12 * max(1.0, abs(centre))
    scale = 1.0 if level else spread
    inputs = features(space, x)
    targets = (y - centre) / scale
    share = None
    if runs is not None and noise and not (runs == runs[0]).all():
        share = runs / runs.max()
    seen = np.unique(np.linspace(0, len(x) - 1, min(ROWS, len(x))).astype(np.int64))
    weights = None if share is None else share[seen]
    model = _model(inputs[seen], targets[seen], noise, warp, weights)
    if not level and inputs.shape[1]:
        _search(model)
    bends = None
    if warp:
        bends = _bends(model.input_transform)
        inputs = warped(inputs, *bends)
    return Surrogate(
        space,
        inputs,
        targets,
        model.covar_module.base_kernel.lengthscale.detach().numpy()[0].astype(np.float64),
        float(model.covar_module.outputscale),
        float(model.mean_module.constant),
        float(model.likelihood.noise.mean()),
        centre,
        scale,
        bends,
        share=share,
    )


def _model(
    inputs: FloatArray, targets: FloatArray, noise: bool, warp: bool, share: FloatArray | None
) -> Any:
    """Return BoTorch's process for targets [n] at inputs [n,f], as its priors have it."""
    import torch
    from botorch.models import SingleTaskGP
    from botorch.models.transforms.input import Warp
    from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
    from gpytorch.kernels import ScaleKernel
    from gpytorch.priors import GammaPrior, LogNormalPrior

    x = torch.from_numpy(inputs)
    z = torch.from_numpy(targets)[:, None]
    f = inputs.shape[1]
    prior = LogNormalPrior(0.0, 0.75**0.5)
    bend: Any = None
    if warp:
        bend = Warp(f, list(range(f)), concentration0_prior=prior, concentration1_prior=prior)
    matern = get_covar_module_with_dim_scaled_prior(f, use_rbf_kernel=False)
    return SingleTaskGP(
        x,
        z,
        None if noise else torch.full_like(z, 1e-6),
        covar_module=ScaleKernel(matern, outputscale_prior=GammaPrior(2.0, 0.15)),
        outcome_transform=None,
        input_transform=bend,
        likelihood=None if share is None else _weighed(share),
    )


def _search(model: Any) -> None:
    """Search for the parameters of a process that fit best; if that fails, leave them."""
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood

    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    try:
        fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": STEPS}})
    except Exception as error:  # BoTorch found no step that succeeds
        logging.getLogger("fedpareto").info(
            "a Gaussian process could not be fitted to %d rows: %s",
            len(model.train_targets),
            error,
        )


def _bends(warp: Any) -> tuple[FloatArray, FloatArray]:
    """Return the two exponents [f] and [f] by which BoTorch's warp bends each input."""
    a = warp.concentration1.detach().numpy().reshape(-1)
    b = warp.concentration0.detach().numpy().reshape(-1)
    return a, b


def _weighed(share: FloatArray) -> Any:
    """Return BoTorch's likelihood, the noise of each row divided by its share [n] of trainings."""
    import torch
    from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
    from linear_operator.operators import DiagLinearOperator

    likelihood = get_gaussian_likelihood_with_lognormal_prior()
    shares = torch.from_numpy(share)
    likelihood.noise_covar.forward = lambda *_, **__: DiagLinearOperator(likelihood.noise / shares)
    return likelihood


def warped(x: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Return x [n,f] bent as BoTorch's warp does: by Kumaraswamy's 1 − (1 − xᵃ)ᵇ."""
    x = x * (1 - 2 * EDGE) + EDGE
    return np.asarray(1 - (1 - x**a) ** b)


def features(space: Space, x: FloatArray) -> FloatArray:
    """Return the points x [n,d] with each unordered choice as one column per value, [n,f]."""
    columns = [
        np.eye(v.size)[np.minimum((x[:, j] * v.size).astype(np.int64), v.size - 1)]
        if _unordered(v)
        else x[:, j : j + 1]
        for j, v in enumerate(space.variables)
    ]
    return np.ascontiguousarray(np.hstack(columns)) if columns else np.empty((len(x), 0))


def sloped(space: Space, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return features that change smoothly with the points x [n,d], and their slopes, [n,f] each.

    Between two values of an unordered choice, a point is part one and part the next.
    """
    columns = []
    slopes = []
    for j, v in enumerate(space.variables):
        column = x[:, j : j + 1]
        slope = np.ones_like(column)
        if _unordered(v):
            off = column * v.size - (np.arange(v.size) + 0.5)
            column = np.maximum(1 - np.abs(off), 0)
            slope = -v.size * np.sign(off) * (np.abs(off) < 1)
        columns.append(column)
        slopes.append(slope)
    return np.hstack(columns), np.hstack(slopes)


def widths(space: Space) -> list[int]:
    """Return how many features each variable has."""
    return [v.size if _unordered(v) else 1 for v in space.variables]


def _unordered(variable: Variable) -> TypeGuard[Choice]:
    return (
        isinstance(variable, Choice)
        and variable.size > 2
        and not all(isinstance(c, int | float) for c in variable.choices)
    )


def filled(y: FloatArray) -> FloatArray:
    """Return y [n,m] with the worst value measured in place of each that is missing.

    So what is learned from it keeps away from failures.
    """
    known = np.where(np.isfinite(y), y, -np.inf).max(axis=0, initial=-np.inf)
    return np.where(np.isfinite(y), y, np.where(np.isfinite(known), known, 0.0))
