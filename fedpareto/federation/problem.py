"""The simulated federation as a problem: settings in, measures out."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import ModelError, SettingError
from fedpareto.federation.data import Data, load
from fedpareto.federation.draws import cohort
from fedpareto.federation.measures import MEASURES
from fedpareto.federation.models import Model
from fedpareto.federation.split import deal
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Mechanism
from fedpareto.problem import Objective
from fedpareto.settings import fixed, largest, searched
from fedpareto.space import FloatArray, Space, Values, Variable

if TYPE_CHECKING:
    from fedpareto.federation.rounds import Trace

MEMORY = 4 * 2**30  # bytes that the stacked parameters of a block, their updates and their noise may take


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
        return Space(searched(self.training) + searched(self.mechanism) + searched(self.model))

    @property
    def slots(self) -> int:
        """The largest cohort that any setting can ask for."""
        return cohort(float(_most(self.training.sample_ratio)), self.data.clients)

    @property
    def widest(self) -> Model:
        return fixed(self.model, largest)

    def split_table(self, seed: int) -> NDArray[np.int64]:
        """Return how many training images of each class each client holds in a repeat, [K,C]."""
        data = load(self.data)
        split, _ = deal(data.y_train, self.data, seed)
        owner = np.repeat(np.arange(self.data.clients), split.sizes)
        table = np.zeros((self.data.clients, data.classes), dtype=np.int64)
        np.add.at(table, (owner, data.y_train[split.order]), 1)
        return table

    def check(self) -> None:
        """Load the data, deal them and build the model once, so that what is wrong with them is said before anything runs."""
        from fedpareto.federation.train import seeded, stack

        data = load(self.data)
        needed = 16 * parameters_of(self.widest, data.shape, data.classes)  # type: ignore[arg-type]
        if needed > _memory():
            raise ModelError(f"the model must fit into memory, found {needed / 16:.3g} parameters: with gradient and update "
                             f"{needed / 2**30:,.0f} GiB, where there are {_memory() / 2**30:,.0f}. Make it narrower.")
        deal(data.y_train, self.data, 0)
        stack(seeded(lambda: self.widest.build(data.shape, data.classes), 0), data.shape, data.classes)
        self._device()

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Train the federations of these settings, name → [n], and return every measure, name → [n]."""
        n = len(seeds)
        settings = self._settings(values, n)
        names = _measurable(settings)
        out = {name: np.full(n, np.nan) for name in [*names, "diverged_round"]}
        for rows, trace in self._traces(values, settings, seeds):
            columns = {name: column[rows] for name, column in settings.items()}
            lost = trace.diverged <= columns["rounds"]
            for name in names:
                out[name][rows] = np.where(lost, np.nan, MEASURES[name].compute(trace, columns))
            out["diverged_round"][rows] = np.where(lost, trace.diverged, np.nan)
        return out

    def every_round(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Return every measure after every round, name → [n,T]: a run of T rounds is a run of each t < T too."""
        n = len(seeds)
        settings = self._settings(values, n)
        rounds = int(settings["rounds"].max())
        names = _measurable(settings)
        out = {name: np.full((n, rounds), np.nan) for name in names}
        for rows, trace in self._traces(values, settings, seeds):
            for t in range(trace.error.shape[1]):
                columns = {name: column[rows] for name, column in settings.items()} | {"rounds": np.full(len(rows), t + 1.0)}
                lost = (trace.diverged <= t + 1) | (t >= settings["rounds"][rows])
                for name in names:
                    out[name][rows, t] = np.where(lost, np.nan, MEASURES[name].compute(trace, columns))
        return out

    def _settings(self, values: Values, n: int) -> dict[str, FloatArray]:
        """Return every numeric setting of training and mechanism, fixed or searched, name → [n]."""
        held: dict[str, Any] = {}
        for part in (self.training, self.mechanism):
            held |= {f.name: getattr(part, f.name) for f in dataclasses.fields(part)}  # type: ignore[arg-type]
        held |= {name: values[name] for name in self.space.names if name in held}
        numeric = {name: v for name, v in held.items() if not isinstance(v, str | bool | tuple | Variable)}
        return {name: np.broadcast_to(np.asarray(v, dtype=np.float64), (n,)) for name, v in numeric.items()}

    def _traces(self, values: Values, settings: dict[str, FloatArray],
                seeds: Sequence[int]) -> Iterator[tuple[NDArray[np.int64], Trace]]:
        """Train block by block; yield the rows of each block and what they showed.

        A block has one seed on a CPU; on a GPU, rows that repeat the same settings with other seeds join it. It is padded to a
        fixed number of settings, so that no row depends on how many there are.
        """
        device = self._device()
        rows_at_once, seeds_at_once = self._at_once(device)
        if not self._repeated(values, seeds):
            seeds_at_once = 1
        for grid in blocks(seeds, rows_at_once, seeds_at_once):  # [S,R] row numbers
            padded = np.stack([np.resize(rows, rows_at_once) for rows in grid])
            trace = self._train(values, settings, padded, [seeds[rows[0]] for rows in grid], device)
            keep = np.concatenate([s * padded.shape[1] + np.arange(grid.shape[1]) for s in range(len(grid))])
            kept = {f.name: getattr(trace, f.name)[keep] for f in dataclasses.fields(trace)}
            yield grid.flatten(), dataclasses.replace(trace, **kept)

    def _repeated(self, values: Values, seeds: Sequence[int]) -> bool:
        """Say whether every seed has the same settings in the same order, so that they can train as one grid."""
        by_seed: dict[int, list[tuple[Any, ...]]] = {}
        for i, seed in enumerate(seeds):
            by_seed.setdefault(seed, []).append(tuple(values[name][i] for name in self.space.names))
        return len(set(map(tuple, by_seed.values()))) == 1

    def _train(self, values: Values, settings: dict[str, FloatArray], grid: NDArray[np.int64], seeds: Sequence[int],
               device: str) -> Trace:
        import torch

        from fedpareto.federation.rounds import Setup, train

        columns = {name: torch.from_numpy(column[grid[0]]).float() for name, column in settings.items()}
        models = [fixed(self.model, lambda v, i=i: values[v.name][i]) for i in grid[0]]  # type: ignore[misc]
        repeats = [Setup(self.data, self.widest, self.training, self.mechanism, seed) for seed in seeds]
        return train(repeats, columns, models, self.slots, device)

    def _device(self) -> str:
        """Return where to train."""
        if self.training.device == "cpu":
            return "cpu"
        import torch

        if self.training.device == "cuda" and not torch.cuda.is_available():
            raise SettingError("training.device: cuda must be there to be used, found no CUDA device. Use auto or cpu.")
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _at_once(self, device: str) -> tuple[int, int]:
        """Return how many settings, and how many repeats of them, train together.

        As many settings as the block has, less where they would not fit; on a GPU, then as many repeats as fit. On a CPU the
        figure follows from the study alone, so that every machine gives the same bits.
        """
        data = load(self.data)
        one = 16 * parameters_of(self.widest, data.shape, data.classes) * self.slots  # type: ignore[arg-type]
        if device == "cpu":
            return max(1, min(self.block, int(MEMORY / one))), 1
        import torch

        room = torch.cuda.get_device_properties(0).total_memory / 2
        rows = max(1, min(self.block, int(room / one)))
        return rows, max(1, int(room / (one * rows)))


def blocks(seeds: Sequence[int], rows: int, repeats: int) -> Iterator[NDArray[np.int64]]:
    """Yield grids [S,R] of row numbers: at most `rows` of one seed, and with them those of at most `repeats` seeds in all."""
    by_seed = [np.flatnonzero(np.asarray(seeds) == seed) for seed in dict.fromkeys(seeds)]
    if repeats > 1 and len({len(r) for r in by_seed}) == 1:
        whole = np.stack(by_seed)  # [seeds, rows of each]
        for i in range(0, len(whole), repeats):
            yield from (whole[i : i + repeats, j : j + rows] for j in range(0, whole.shape[1], rows))
        return
    for mine in by_seed:
        yield from (mine[None, i : i + rows] for i in range(0, len(mine), rows))


@functools.lru_cache(maxsize=16)
def parameters_of(model: Model, shape: tuple[int, ...], classes: int) -> int:
    """Return the number of parameters of a model, without giving them memory."""
    import torch

    with torch.device("meta"):
        return sum(p.numel() for p in model.build(shape, classes).parameters())


def _measurable(settings: Mapping[str, FloatArray]) -> list[str]:
    """Return the measures that these settings allow."""
    return [name for name, m in MEASURES.items() if all(need in settings for need in m.needs)]


def _most(value: Any) -> Any:
    return largest(value) if isinstance(value, Variable) else value


def _memory() -> int:
    """Return the bytes of memory of this machine, or a very large number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62
