"""The simulated federation as a problem: settings in, measures out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.federation.data import Data, load
from fedpareto.federation.draws import cohort
from fedpareto.federation.measures import MEASURES
from fedpareto.federation.models import Model
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Mechanism
from fedpareto.problem import Objective
from fedpareto.settings import searched
from fedpareto.space import FloatArray, Space, Values, Variable


@dataclass(frozen=True)
class Federation:
    """Train federations and measure them, many at once."""

    data: Data
    model: Model
    training: Training
    mechanism: Mechanism
    objectives: tuple[Objective, ...]
    block: int = 20

    failures = {"diverged_round": "training diverged in round {:.0f}; a smaller learning rate may help"}  # noqa: RUF012

    @property
    def space(self) -> Space:
        return Space(searched(self.training) + searched(self.mechanism))

    @property
    def slots(self) -> int:
        """The largest cohort that any setting can ask for."""
        ratio = self.training.sample_ratio
        return cohort(ratio if isinstance(ratio, float) else _largest(ratio), self.data.clients)

    def check(self) -> None:
        """Load the data and build the model once, so that what is wrong with them is said before anything runs."""
        data = load(self.data)
        self.model.build(data.shape, data.classes)

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Train the federations of these settings, name → [n], and return every measure, name → [n]."""
        settings = self._settings(values, len(seeds))
        names = [name for name, m in MEASURES.items() if all(need in settings for need in m.needs)]
        out = {name: np.full(len(seeds), np.nan) for name in [*names, "diverged_round"]}
        for rows in self._blocks(seeds):
            for name, column in self._train(settings, rows, seeds[rows[0]], names).items():
                out[name][rows] = column[: len(rows)]
        return out

    def _settings(self, values: Values, n: int) -> dict[str, FloatArray]:
        """Return every numeric setting, fixed or searched, name → [n]."""
        held: dict[str, Any] = {}
        for part in (self.training, self.mechanism):
            held |= {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}  # type: ignore[arg-type]
        held |= {name: values[name] for name in self.space.names}
        numeric = {name: v for name, v in held.items() if not isinstance(v, str | bool | Variable)}
        return {name: np.broadcast_to(np.asarray(v, dtype=np.float64), (n,)) for name, v in numeric.items()}

    def _blocks(self, seeds: Sequence[int]) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of each block; rows of one block share their seed."""
        for seed in dict.fromkeys(seeds):
            rows = np.flatnonzero(np.asarray(seeds) == seed)
            yield from (rows[i : i + self.block] for i in range(0, len(rows), self.block))

    def _train(self, settings: dict[str, FloatArray], rows: NDArray[np.int64], seed: int,
               names: list[str]) -> dict[str, FloatArray]:
        """Train one block, padded to its fixed size so that no row depends on how many there are."""
        import torch

        from fedpareto.federation.rounds import Setup, train

        padded = np.resize(rows, self.block)
        columns = {name: column[padded] for name, column in settings.items()}
        setup = Setup(load(self.data), self.data.clients, self.model, self.training, self.mechanism, seed)
        trace = train(setup, {name: torch.from_numpy(c).float() for name, c in columns.items()}, self.slots)
        lost = trace.diverged <= columns["rounds"]
        measured = {name: np.where(lost, np.nan, MEASURES[name].compute(trace, columns)) for name in names}
        return measured | {"diverged_round": np.where(lost, trace.diverged, np.nan)}


def _largest(ratio: Variable) -> float:
    return float(max(ratio.decode(0.0), ratio.decode(1.0)))
