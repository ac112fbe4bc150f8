"""The simulated federation as a problem: settings in, measures out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import ModelError, SettingError
from fedpareto.federation.cost import Cost
from fedpareto.federation.costs import costs
from fedpareto.federation.data import Data, load
from fedpareto.federation.draws import cohort, taking_part
from fedpareto.federation.measures import MEASURES
from fedpareto.federation.models import Model
from fedpareto.federation.sizes import size_of, sizes
from fedpareto.federation.split import deal
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Mechanism, Unprotected, adds_noise
from fedpareto.privacy import VIEWS, Guarantee, Privacy, epsilon, guarantee, selection_guarantee
from fedpareto.problem import Objective
from fedpareto.settings import fixed, largest, least, named, searched
from fedpareto.space import FloatArray, Integer, Space, Values, Variable

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
    privacy: Privacy = Privacy()
    cost: Cost = Cost()

    failures = {"diverged_round": "training diverged in round {:.0f}; a smaller learning rate may help"}  # noqa: RUF012

    def __post_init__(self) -> None:
        q = least(self.training.sample_ratio)
        if q * self.data.clients < 1 - 1e-9:
            raise SettingError(f"training.sample_ratio: must ask for at least one client, found {q:g} of {self.data.clients} clients. "
                               f"Raise it to {1 / self.data.clients:g}.")
        self._sums_can_be_held()
        asked = {o.measure for o in self.objectives if o.measure.startswith("epsilon")}
        if asked:
            self._guarantee_can_hold({self.privacy.view if m == "epsilon" else m.removeprefix("epsilon_") for m in asked})

    def _sums_can_be_held(self) -> None:
        """Refuse a mechanism that cannot sum so many clients, or not by weight."""
        if not hasattr(self.mechanism, "fits"):
            return
        if getattr(self.mechanism, "joint", False) and self.training.weighting != "uniform":
            raise SettingError("training.weighting: must be uniform for encrypted sums, found size. Write weighting = \"uniform\".")
        fixed_size = self.training.sampling == "fixed"
        most = int(cohort(float(largest(self.training.sample_ratio)), self.data.clients)) if fixed_size else self.data.clients
        try:
            self.mechanism.fits(most)
        except SettingError as error:
            raise SettingError(f"mechanism.{error}") from None

    def _guarantee_can_hold(self, views: set[str]) -> None:
        """Refuse an ε that is asked for and cannot be given."""
        if not all(map(self._bounded, views)):
            raise SettingError("training.weighting: must be uniform for a true ε of sums, found size: a client with many images would "
                               "weigh more than the clipping norm bounds. Write weighting = \"uniform\".")
        lowest = {name: least(v) for name, v in named(self.mechanism).items() if not isinstance(v, str | bool | tuple | None)}
        sigma = self.mechanism.gaussian({**lowest, "cohort": 1.0})[0] if adds_noise(self.mechanism) else 0.0  # type: ignore
        if not sigma > 0:
            zero = next((name for name, v in lowest.items() if v == 0 and name.startswith(("sigma", "noise_multiplier"))), "name")
            raise SettingError(f"mechanism.{zero}: must add noise where ε is asked for, found {lowest.get(zero, 'none')}: without noise "
                               "there is no ε. Raise its lower end above 0, or choose a mechanism that adds noise.")

    @property
    def space(self) -> Space:
        return Space(searched(self.training) + searched(self.mechanism) + searched(self.model))

    def slots(self, seeds: Sequence[int]) -> int:
        """Return the largest number of clients that any setting can ask for in a round of these repeats."""
        ratio, K = float(largest(self.training.sample_ratio)), self.data.clients
        if self.training.sampling == "fixed":
            return int(cohort(ratio, K))
        rounds = range(int(largest(self.training.rounds)))
        drawn = [int(taking_part(seed, t, K, np.array([ratio]), "poisson")[0]) for seed in seeds for t in rounds]
        return max([1, round(ratio * K), *drawn])

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
        needed = 16 * parameters_of(self.widest, data.shape, data.classes)
        if needed > _memory():
            raise ModelError(f"the model must fit into memory, found {needed / 16:.3g} parameters: with gradient and update "
                             f"{needed / 2**30:,.0f} GiB, where there are {_memory() / 2**30:,.0f}. Make it narrower.")
        deal(data.y_train, self.data, 0)
        stack(seeded(lambda: self.widest.build(data.shape, data.classes), 0), data.shape, data.classes)
        self._device()

    @property
    def free(self) -> str | None:
        """The variable along which a run tells every smaller value: the rounds, where they are searched."""
        return "rounds" if isinstance(self.training.rounds, Integer) else None

    def known(self, values: Values, names: Sequence[str] | None = None) -> dict[str, FloatArray]:
        """Return the measures that follow from the settings alone, name → [n]: those of objectives unless others are named."""
        asked = {o.measure for o in self.objectives} if names is None else set(names)
        wanted = {name: m for name, m in MEASURES.items() if name in asked}
        columns = self.columns(values, len(next(iter(values.values()), ())), views=self._views(asked))
        counted = any(m.figures for m in wanted.values())
        told = costs(self.data, self.training, self.mechanism, self.cost, columns) if counted else {}
        return {name: m.compute(SimpleNamespace(**told), columns) for name, m in wanted.items() if m.follows(columns, told)}

    def _views(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the views whose ε these measures ask for."""
        return tuple(v for v in VIEWS if f"epsilon_{v}" in names or ("epsilon" in names and v == self.privacy.view))

    def measure(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Train the federations of these settings, name → [n], and return every measure, name → [n]."""
        return self._measured(values, seeds, ())[0]

    def measure_along(self, values: Values, seeds: Sequence[int]) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Return every measure, name → [n], and those of the objectives after every round, name → [n,T]."""
        return self._measured(values, seeds, tuple(dict.fromkeys(o.measure for o in self.objectives)))

    def every_round(self, values: Values, seeds: Sequence[int], names: Sequence[str] | None = None) -> dict[str, FloatArray]:
        """Return measures after every round, name → [n,T]: a run of T rounds is a run of each t < T too. All unless named."""
        asked = _measurable(self.columns(values, len(seeds))) if names is None else names
        return self._measured(values, seeds, tuple(asked))[1]

    def _measured(self, values: Values, seeds: Sequence[int],
                  on_the_way: tuple[str, ...]) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        n = len(seeds)
        columns = self.columns(values, n) | self._unprotected(values, seeds)
        names, rounds = _measurable(columns), int(columns["rounds"].max())
        out = {name: np.full(n, np.nan) for name in [*names, "diverged_round"]}
        way = {name: np.full((n, rounds), np.nan) for name in on_the_way}
        for rows, trace in self._traces(values, columns, seeds):
            mine, trained = {name: column[rows] for name, column in columns.items()}, trace.error.shape[1]
            lost = trace.diverged <= mine["rounds"]
            there = mine | {"rounds": np.minimum(mine["rounds"], trained)}
            for name in names:
                out[name][rows] = np.where(lost, np.nan, MEASURES[name].compute(trace, there))
            out["diverged_round"][rows] = np.where(lost, trace.diverged, np.nan)
            for name, column in self._way(trace, mine, on_the_way, mine["rounds"]).items():
                way[name][rows, :trained] = column
        return out, way

    def _way(self, trace: Trace, mine: dict[str, FloatArray], names: Sequence[str], ends: FloatArray) -> dict[str, FloatArray]:
        """Return measures after each round of a trace, name → [k,T]; nan beyond each run's end [k] and once it diverged."""
        way, views = {name: np.full(trace.error.shape, np.nan) for name in names}, self._views(names)
        for t in range(trace.error.shape[1] if names else 0):
            then = mine | {"rounds": np.full(len(ends), t + 1.0)}
            then |= self._epsilons(then, views)
            beyond = (trace.diverged <= t + 1) | (t >= ends)
            for name in names:
                way[name][:, t] = np.where(beyond, np.nan, MEASURES[name].compute(trace, then))
        return way

    def columns(self, values: Values, n: int, views: Sequence[str] = VIEWS) -> dict[str, FloatArray]:
        """Return every numeric setting, fixed or searched, and what follows from settings alone, name → [n]; ε for these views."""
        held = named(self.training) | named(self.mechanism)
        held |= {name: values[name] for name in self.space.names if name in held}
        held |= {"clients": self.data.clients, "delta": self.privacy.delta(self.data.clients)}
        numeric = {name: v for name, v in held.items() if not isinstance(v, str | bool | tuple | Variable | None)}
        out = {name: np.broadcast_to(np.asarray(v, dtype=np.float64), (n,)) for name, v in numeric.items()}
        out["cohort"] = np.array([float(cohort(q, self.data.clients, self.training.sampling)) for q in out["sample_ratio"]])
        data = load(self.data)
        out["parameters"], out["linear_parameters"] = sizes(self.model, values, n, data.shape, data.classes)
        out |= self._noise(out)
        return out | self._epsilons(out, views)

    def _noise(self, columns: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the noise of each client, the norm it hides and the noise multiplier on the sum; nothing where none is added."""
        if not adds_noise(self.mechanism):
            return {}
        sigma, norm = (np.broadcast_to(np.asarray(v, dtype=np.float64), columns["rounds"].shape)
                       for v in self.mechanism.gaussian(columns))  # type: ignore[attr-defined]
        return {"sigma": sigma, "norm": norm, "clipping_norm": columns.get("clipping_norm", norm),
                "noise_multiplier": sigma * np.sqrt(columns["cohort"]) / norm}

    def _epsilons(self, columns: dict[str, FloatArray], views: Sequence[str]) -> dict[str, FloatArray]:
        """Return the true ε of these views, and the headline; infinite without noise, nan where no bound is known."""
        out = {}
        for view in views:
            if "norm" not in columns:
                out[view] = np.full(columns["rounds"].shape, np.inf)
            elif not self._bounded(view):
                out[view] = np.full(columns["rounds"].shape, np.nan)
            else:
                out[view] = epsilon(self.privacy, **self._terms(columns, view))
        headline = {"epsilon": out[self.privacy.view]} if self.privacy.view in out else {}
        return {f"epsilon_{view}": column for view, column in out.items()} | headline

    def _bounded(self, view: str) -> bool:
        """Say whether a client's share of what is seen has a bound: in sums, only if all weigh the same."""
        return view == "server" or self.training.weighting == "uniform"

    def _terms(self, columns: dict[str, FloatArray], view: str) -> dict[str, Any]:
        """Return what an accountant needs of these rows, as its arguments.

        Under Poisson sampling a cohort of all clients shares the noise of the expected one, so that a server that sees each upload
        may see less of it than sigma.
        """
        sigma = columns["sigma"]
        if view == "server" and self.training.sampling == "poisson":
            sigma = sigma * np.sqrt(columns["cohort"] / columns["clients"])
        return {"noise": sigma, "clipping_norm": columns["norm"], "cohort": columns["cohort"], "clients": self.data.clients,
                "rounds": columns["rounds"], "sampling": self.training.sampling, "view": view}

    def guarantee(self, settings: Mapping[str, Any], view: str | None = None) -> Guarantee | None:
        """Return what is promised of one point, as a statement; None where no noise is added or no bound is known."""
        view = view or self.privacy.view
        columns = self.columns({name: [value] for name, value in settings.items()}, 1, views=())
        if not self._promises(columns, view):
            return None
        terms = {name: float(v[0]) if isinstance(v, np.ndarray) else v for name, v in self._terms(columns, view).items()}
        return guarantee(self.privacy, **terms | {"rounds": int(terms["rounds"])})

    def search_guarantee(self, tried: Sequence[Mapping[str, Any]], repeats: int) -> Guarantee | None:
        """Return what the search itself promises: choosing among these points, each trained so many times on private data."""
        columns = self.columns({name: [s[name] for s in tried] for name in self.space.names}, len(tried), views=())
        if not self._promises(columns, self.privacy.view):
            return None
        return selection_guarantee(self.privacy, **self._terms(columns, self.privacy.view), trials=len(tried), repeats=repeats)

    def _promises(self, columns: dict[str, FloatArray], view: str) -> bool:
        """Say whether every row adds noise and what is seen of it is bounded."""
        return "norm" in columns and bool((columns["sigma"] > 0).all()) and self._bounded(view)

    def _unprotected(self, values: Values, seeds: Sequence[int]) -> dict[str, FloatArray]:
        """Return the test error of the same trainings without protection, where an objective asks for it."""
        if all(o.measure != "utility_lost" for o in self.objectives):
            return {}
        twin = dataclasses.replace(self, mechanism=Unprotected(), objectives=())
        return {"unprotected_error": twin.measure(values, seeds)["test_error"]}

    def _traces(self, values: Values, columns: dict[str, FloatArray], seeds: Sequence[int]) -> Iterator[tuple[NDArray[np.int64], Trace]]:
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
            keep = np.concatenate([s * padded.shape[1] + np.arange(grid.shape[1]) for s in range(len(grid))])
            trace = self._train(values, columns, padded, [seeds[rows[0]] for rows in grid], device)
            yield grid.flatten(), _only(trace, keep)

    def _repeated(self, values: Values, seeds: Sequence[int]) -> bool:
        """Say whether every seed has the same settings in the same order, so that they can train as one grid."""
        by_seed: dict[int, list[tuple[Any, ...]]] = {}
        for i, seed in enumerate(seeds):
            by_seed.setdefault(seed, []).append(tuple(values[name][i] for name in self.space.names))
        return len(set(map(tuple, by_seed.values()))) == 1

    def _train(self, values: Values, columns: dict[str, FloatArray], grid: NDArray[np.int64], seeds: Sequence[int],
               device: str) -> Trace:
        import torch

        from fedpareto.federation.rounds import Setup, train

        settings = {name: torch.from_numpy(columns[name][grid[0]]).float() for name in self._numeric(columns)}
        settings["sample_ratio"] = torch.from_numpy(columns["sample_ratio"][grid[0]])  # in float32, 0.35 of 10 clients were 3, not 4
        models = [fixed(self.model, lambda v, i=i: values[v.name][i]) for i in grid[0]]  # type: ignore[misc]
        repeats = [Setup(self.data, self.widest, self.training, self.mechanism, seed, self.cost) for seed in seeds]
        return train(repeats, settings, models, self.slots(seeds), device)

    def _numeric(self, columns: Mapping[str, FloatArray]) -> list[str]:
        """Return the names of the columns that are settings of training or mechanism."""
        return [name for name in named(self.training) | named(self.mechanism) if name in columns]

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
        P = parameters_of(self.widest, data.shape, data.classes)
        one = 16 * P * self.slots(()) + (5 * P * self.data.clients if "private_fraction" in named(self.mechanism) else 0)
        if device == "cpu":
            return max(1, min(self.block, int(MEMORY / one))), 1
        import torch

        room = torch.cuda.get_device_properties(0).total_memory / 2
        rows = max(1, min(self.block, int(room / one)))
        return rows, max(1, int(room / (one * rows)))


def _only(trace: Trace, rows: NDArray[Any]) -> Trace:
    """Return these rows of a trace."""
    return dataclasses.replace(trace, **{f.name: getattr(trace, f.name)[rows] for f in dataclasses.fields(trace)})


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


def parameters_of(model: Model, shape: tuple[int, ...], classes: int) -> int:
    """Return the number of parameters of a model."""
    return size_of(model, shape, classes)[0]  # type: ignore[arg-type]


def _measurable(columns: Mapping[str, FloatArray]) -> list[str]:
    """Return the measures that these columns allow."""
    return [name for name, m in MEASURES.items() if all(need in columns for need in m.needs)]


def _memory() -> int:
    """Return the bytes of memory of this machine, or a very large number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**62
