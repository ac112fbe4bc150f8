"""The simulated federation as a problem: settings in, measures out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.federation import blocks, columns, promises, rules
from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, load
from fedpareto.federation.known import known_costs
from fedpareto.federation.local import LocalStep, Sgd
from fedpareto.federation.measures import Measure, measures_of
from fedpareto.federation.models import Model
from fedpareto.federation.servers import Average, ServerStep
from fedpareto.federation.split import deal
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Mechanism, Unprotected
from fedpareto.privacy import VIEWS, Guarantee, Privacy
from fedpareto.problem import Objective
from fedpareto.settings import fixed, largest, searched
from fedpareto.space import FloatArray, Integer, Space, Values

if TYPE_CHECKING:
    from torch import nn

    from fedpareto.federation.observer import Observer
    from fedpareto.federation.trace import Trace

Measured = dict[str, FloatArray]


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
    server: ServerStep = field(default_factory=Average)
    local: LocalStep = field(default_factory=Sgd)

    failures = {  # noqa: RUF012
        "diverged_round": "training diverged in round {:.0f}; a smaller learning rate may help"
    }

    def __post_init__(self) -> None:
        rules.check_settings(self)

    def check(self) -> None:
        """Load the data, deal them and build the model once, to say early what is wrong."""
        rules.check_parts(self)

    @property
    def space(self) -> Space:
        """What is searched, of training, mechanism, model, server and local step."""
        parts = (self.training, self.mechanism, self.model, self.server, self.local)
        return Space(tuple(v for part in parts for v in searched(part)))

    @property
    def widest(self) -> Model:
        """The model with every width at its largest."""
        return fixed(self.model, largest)

    @property
    def free(self) -> str | None:
        """The variable along which a run shows every smaller value: the rounds, if searched."""
        return "rounds" if isinstance(self.training.rounds, Integer) else None

    @property
    def repeats_at_once(self) -> int:
        """How many repeats train together: one on a CPU, as many as fit on a GPU."""
        return blocks.at_once(self)[1]

    @property
    def measures(self) -> dict[str, Measure]:
        """Every measure there is, those of the user's own among them."""
        return measures_of(self.own_measures)

    @property
    def own_measures(self) -> tuple[str, ...]:
        """The measures of the user's own that objectives ask for, as package.module:function.

        For the worst client's share, _worst is behind it.
        """
        return tuple(dict.fromkeys(o.measure for o in self.objectives if ":" in o.measure))

    def split_table(self, seed: int) -> NDArray[np.int64]:
        """Return how many training images of each class each client holds in a repeat, [K,C].

        C is 1 where numbers are predicted.
        """
        data = load(self.data)
        split, _ = deal(data.y_train, self.data, seed)
        owner = np.repeat(np.arange(self.data.clients), split.sizes)
        table = np.zeros((self.data.clients, data.classes), dtype=np.int64)
        labels = np.zeros_like(owner) if data.numbers else data.y_train[split.order]
        np.add.at(table, (owner, labels), 1)
        return table

    def columns(self, values: Values, n: int, views: Sequence[str] = VIEWS) -> Measured:
        """Return every number of n points and what follows from settings alone, name → [n]."""
        return columns.columns_of(self, values, n, views)

    def guarantee(self, settings: Mapping[str, Any], view: str | None = None) -> Guarantee | None:
        """Return what is promised of one point; None without noise or a known bound."""
        return promises.promise(self, settings, view)

    def search_guarantee(
        self, tried: Sequence[Mapping[str, Any]], repeats: int
    ) -> Guarantee | None:
        """Return what a search promises that trains each of these points so many times."""
        return promises.search_promise(self, tried, repeats)

    def known(self, values: Values, names: Sequence[str] | None = None) -> Measured:
        """Return the measures that follow from the settings alone, name → [n].

        Those of objectives unless others are named.
        """
        asked = {o.measure for o in self.objectives} if names is None else set(names)
        wanted = {name: m for name, m in self.measures.items() if name in asked}
        n = len(next(iter(values.values()), ()))
        held = self.columns(values, n, views=self._views(asked))
        figures: Measured = {}
        if any(m.figures for m in wanted.values()):
            figures = known_costs(blocks.setup_of(self, 0), held)
        return {
            name: m.known_from(figures, held)
            for name, m in wanted.items()
            if m.follows(held, figures)
        }

    def measure(self, values: Values, seeds: Sequence[int]) -> Measured:
        """Train the federations of these settings, name → [n], and return measures, name → [n]."""
        return self._measured(values, seeds, ())[0]

    def measure_along(self, values: Values, seeds: Sequence[int]) -> tuple[Measured, Measured]:
        """Return every measure, name → [n], and the objectives' after each round, name → [n,T]."""
        asked = tuple(dict.fromkeys(o.measure for o in self.objectives))
        return self._measured(values, seeds, asked)

    def every_round(
        self, values: Values, seeds: Sequence[int], names: Sequence[str] | None = None
    ) -> Measured:
        """Return measures after every round, name → [n,T]; all unless named.

        A run of T rounds is a run of each t < T too.
        """
        asked = names
        if asked is None:
            asked = self._measurable(self.columns(values, len(seeds)))
        return self._measured(values, seeds, tuple(asked))[1]

    def train(
        self, settings: Mapping[str, Any], seed: int, observer: Observer | None = None
    ) -> tuple[nn.Module, dict[str, float]]:
        """Train one point; return the model, ready to use, and what `measure` says of it."""
        from fedpareto.federation.keeping import kept_model

        values = {name: [settings[name]] for name in self.space.names}
        held = self.columns(values, 1) | self._unprotected(values, [seed])
        grid = np.zeros((1, 1), dtype=np.int64)
        trace, state = blocks.trained(self, values, held, grid, [seed], observer)
        measured = self._ends(trace, held, self._measurable(held))
        module = kept_model(blocks.setup_of(self, seed), self._model_of(settings), state)
        return module, {name: float(column[0]) for name, column in measured.items()}

    def module(self, settings: Mapping[str, Any], seed: int = 0) -> nn.Module:
        """Return the model of one point, untrained: what the weights of `train` load into."""
        return blocks.setup_of(self, seed).module(self._model_of(settings))

    def _model_of(self, settings: Mapping[str, Any]) -> Model:
        """Return the model with the widths of one point."""
        return fixed(self.model, lambda v: settings[v.name])

    def _measured(
        self, values: Values, seeds: Sequence[int], on_the_way: tuple[str, ...]
    ) -> tuple[Measured, Measured]:
        """Return every measure, name → [n], and some after each round, name → [n,T]."""
        n = len(seeds)
        held = self.columns(values, n) | self._unprotected(values, seeds)
        names = self._measurable(held)
        out = {name: np.full(n, np.nan) for name in [*names, "diverged_round"]}
        longest = int(held["rounds"].max())
        way = {name: np.full((n, longest), np.nan) for name in on_the_way}
        for rows, trace in blocks.traces(self, values, held, seeds, along=bool(on_the_way)):
            mine = {name: column[rows] for name, column in held.items()}
            for name, column in self._ends(trace, mine, names).items():
                out[name][rows] = column
            for name, column in self._way(trace, mine, on_the_way).items():
                way[name][rows, : trace.rounds] = column
        return out, way

    def _ends(self, trace: Trace, held: Measured, names: Sequence[str]) -> Measured:
        """Return measures at each run's own end, name → [k]; nan of those that diverged."""
        lost = trace.diverged <= held["rounds"]
        measures = self.measures
        out = {name: np.where(lost, np.nan, measures[name].compute(trace, held)) for name in names}
        return out | {"diverged_round": np.where(lost, trace.diverged, np.nan)}

    def _way(self, trace: Trace, held: Measured, names: Sequence[str]) -> Measured:
        """Return measures after each round, name → [k,T]; nan beyond a run's end or divergence."""
        measures = self.measures
        views = self._views(names)
        way = {name: np.full((len(trace.diverged), trace.rounds), np.nan) for name in names}
        for t in range(trace.rounds if names else 0):
            then = held | {"rounds": np.full(len(trace.diverged), t + 1.0)}
            then |= columns.epsilons(self, then, views)
            beyond = (trace.diverged <= t + 1) | (t >= held["rounds"])
            for name in names:
                found = measures[name].compute(trace, then)
                way[name][:, t] = np.where(beyond, np.nan, found)
        return way

    def _measurable(self, held: Collection[str]) -> list[str]:
        """Return the measures that these columns allow."""
        return [name for name, m in self.measures.items() if all(need in held for need in m.needs)]

    def _views(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the views whose ε these measures ask for."""
        headline = self.privacy.view if "epsilon" in names else None
        return tuple(v for v in VIEWS if f"epsilon_{v}" in names or v == headline)

    def _unprotected(self, values: Values, seeds: Sequence[int]) -> Measured:
        """Return the test error without protection, where an objective asks for what it costs."""
        if all(o.measure != "utility_lost" for o in self.objectives):
            return {}
        twin = dataclasses.replace(self, mechanism=Unprotected(), objectives=())
        return {"unprotected_error": twin.measure(values, seeds)["test_error"]}
