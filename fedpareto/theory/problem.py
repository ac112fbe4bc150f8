"""The closed form of utility loss and leakage as a problem that any optimizer can search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.errors import SettingError
from fedpareto.noise import rng
from fedpareto.problem import Objective
from fedpareto.settings import Real, Whole, largest, least, setting
from fedpareto.space import Float, FloatArray, Integer, Space, Values, Variable
from fedpareto.theory.inputs import noise_share, numbers, whole
from fedpareto.theory.law import objectives, pareto_set


@dataclass(frozen=True)
class ClosedForm:
    """Utility loss and leakage by Gu 2024, Eq. 8, over σ, rounds and the sample ratio.

    Without given objectives both are objectives, and the hypervolume's reference is the worst
    corner of the box.
    """

    k: float = setting(25.0, help="how much noise costs", above=0, search=False)
    clients: int = setting(10, help="clients in all", at_least=1, search=False)
    sigma: Real = setting(Float("sigma", 0.01, 0.15), help="noise that each client adds", above=0)
    rounds: Whole = setting(Integer("rounds", 1, 200), help="rounds of training", at_least=1)
    sample_ratio: Real = setting(
        1.0, help="share of the clients that a round asks", above=0, at_most=1
    )
    noise: float = setting(0.0, help="spread of log f1 from seed to seed", at_least=0, search=False)
    objectives: tuple[Objective, ...] = ()
    block: int = setting(1_000_000, help="rows measured at once", at_least=1, search=False)

    failures = {}  # type: ignore[var-annotated]  # noqa: RUF012

    def __post_init__(self) -> None:
        for name, kind in (("sigma", Float), ("rounds", Integer), ("sample_ratio", Float)):
            value = getattr(self, name)
            if not isinstance(value, Variable):
                continue
            if not isinstance(value, kind):
                raise SettingError(f"{name}: must be a number or a {kind.__name__}, found {value}.")
            if value.name != name:
                raise SettingError(
                    f"{name}: the variable must have this name, found {value.name!r}."
                )
        noise_share(self.k, self.clients, [least(self.sample_ratio), largest(self.sample_ratio)])
        numbers("sigma", [least(self.sigma), largest(self.sigma)], above=0)
        whole("rounds", [least(self.rounds), largest(self.rounds)])
        numbers("noise", self.noise, least=0)
        if not self.objectives:
            object.__setattr__(self, "objectives", self._both())

    @property
    def space(self) -> Space:
        settings = (self.sigma, self.rounds, self.sample_ratio)
        return Space(tuple(v for v in settings if isinstance(v, Variable)))

    def _both(self) -> tuple[Objective, ...]:
        worst_loss, _ = self._formula(
            least(self.rounds), largest(self.sigma), least(self.sample_ratio)
        )
        _, worst_leakage = self._formula(
            largest(self.rounds), least(self.sigma), largest(self.sample_ratio)
        )
        return (
            Objective("utility_loss", reference=float(worst_loss)),
            Objective("leakage", reference=float(worst_leakage), proxy="gu24_eq8"),
        )

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Return utility_loss and leakage, name → [n]."""
        T, s, q = self._columns(values, len(seeds))
        loss, leakage = self._formula(T, s, q)
        return {"utility_loss": loss * self._jitter(T, s, q, seeds), "leakage": leakage}

    @property
    def free(self) -> str | None:
        """The rounds, where they are searched: a training shows every smaller number of them."""
        return "rounds" if isinstance(self.rounds, Integer) else None

    def known(self, values: Values, names: Sequence[str] | None = None) -> dict[str, FloatArray]:
        """Return leakage, name → [n], which its formula gives without any training."""
        if names is not None and "leakage" not in names:
            return {}
        n = 1
        if values:
            n = len(next(iter(values.values())))
        _, leakage = self._formula(*self._columns(values, n))
        return {"leakage": leakage}

    def every_round(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Return each measure after each round, name → [n,T]; nan after a row's last round."""
        last, s, q = self._columns(values, len(seeds))
        most = int(last.max())
        out = {name: np.full((len(seeds), most), np.nan) for name in ("utility_loss", "leakage")}
        for t in range(most):
            rows = np.flatnonzero(last > t)
            here = {
                "rounds": [t + 1] * len(rows),
                "sigma": s[rows].tolist(),
                "sample_ratio": q[rows].tolist(),
            }
            for name, column in self.measure(here, [seeds[int(i)] for i in rows]).items():
                out[name][rows, t] = column
        return out

    def measure_along(
        self, values: Values, seeds: Sequence[int]
    ) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Return the measures after the last round, name → [n], and after every round."""
        return self.measure(values, seeds), self.every_round(values, seeds)

    def front(self, points: int = 5) -> FloatArray:
        """Return the true front [n,2] of the box."""
        # It depends on σ and q through σ²/q alone (Gu 2024, Remark 2), so q = 1 will do.
        low = least(self.sigma) / np.sqrt(largest(self.sample_ratio))
        high = largest(self.sigma) / np.sqrt(least(self.sample_ratio))
        rows = pareto_set(
            k=self.k,
            clients=self.clients,
            sample_ratio=1.0,
            rounds_min=int(least(self.rounds)),
            rounds_max=int(largest(self.rounds)),
            sigma_min=low,
            sigma_max=high,
            points=points,
        )
        return np.stack([rows["f1"], rows["f2"]], axis=1)

    def _columns(self, values: Values, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return rounds, σ and sample ratio, [n] each, whether searched or fixed."""

        def column(name: str, fixed: Any) -> FloatArray:
            held = np.asarray(values.get(name, fixed), dtype=np.float64)
            return np.broadcast_to(held, (n,))

        return (
            column("rounds", self.rounds),
            column("sigma", self.sigma),
            column("sample_ratio", self.sample_ratio),
        )

    def _formula(self, T: Any, s: Any, q: Any) -> tuple[FloatArray, FloatArray]:
        return objectives(T, s, self.k, self.clients, q)

    def _jitter(
        self, T: FloatArray, s: FloatArray, q: FloatArray, seeds: Sequence[int]
    ) -> FloatArray:
        """Return a random factor [n] for each row's f1, drawn from its own settings and seed."""
        if self.noise == 0:
            return np.ones(len(seeds))
        factors = []
        for seed, *row in zip(seeds, T.tolist(), s.tolist(), q.tolist(), strict=True):
            draw = rng(seed, "closed form", *map(repr, row)).standard_normal()
            factors.append(np.exp(self.noise * draw))
        return np.array(factors)
