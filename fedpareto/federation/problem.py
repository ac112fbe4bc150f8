"""The simulated federation as a problem: settings in, measures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError
from fedpareto.federation import baselines, blocks, columns, measuring, promises, rules
from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, Dataset, load, take
from fedpareto.federation.facts import MOST_CLIENTS, Facts
from fedpareto.federation.local import ClipsRecords, LocalStep, Sgd
from fedpareto.federation.looked import is_unseen, known_unrun
from fedpareto.federation.measure import LOST, Measure
from fedpareto.federation.measures import measures_of
from fedpareto.federation.models import Model
from fedpareto.federation.servers import Average, ServerStep
from fedpareto.federation.setup import room
from fedpareto.federation.split import fixed_sizes
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Mechanism
from fedpareto.privacy import VIEWS, Guarantee, Privacy
from fedpareto.problem import Limit, Objective, judges
from fedpareto.settings import fixed, largest, searched
from fedpareto.space import FloatArray, Integer, Space, Values

if TYPE_CHECKING:
    from torch import nn

    from fedpareto.federation.observer import Observer

Measured = dict[str, FloatArray]


@dataclass(frozen=True)
class Federation:
    """Train federations and measure them, many at once."""

    data: Data
    model: Model
    training: Training
    mechanism: Mechanism
    objectives: tuple[Objective, ...]
    block: int = 0  # rows in one pass, fewer are padded to it; 0: up to 20, never padded
    privacy: Privacy = Privacy()
    cost: Cost = Cost()
    server: ServerStep = field(default_factory=Average)
    local: LocalStep = field(default_factory=Sgd)
    limits: tuple[Limit, ...] = ()  # on measures that are no objectives
    looked_at: bool = False  # whether its rows are only shown: the user's own code is not there
    kept: Facts | None = None  # what stands for the data where rows are only shown

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
    def private(self) -> bool:
        """Whether it trains on private data, so that nothing is told but what noise hides."""
        return self.privacy.private_data

    @property
    def hides_records(self) -> bool:
        """Whether the promise is about records that local steps hide."""
        return columns.hides_records(self)

    @property
    def delta(self) -> float:
        """The δ of what is promised."""
        return self.privacy.delta(columns.people(self))

    @property
    def deals_once(self) -> bool:
        """Whether data are dealt to clients the same way in every training."""
        fixed = self.private or isinstance(self.local, ClipsRecords)
        return fixed or self.data.split == "site"

    @property
    def free(self) -> str | None:
        """The variable along which a run shows every smaller value: the rounds, if searched.

        None on private data, where a shorter run is a training of its own, with noise of its own.
        """
        searched_rounds = isinstance(self.training.rounds, Integer)
        return "rounds" if searched_rounds and not self.private else None

    @property
    def repeats_at_once(self) -> int:
        """How many repeats train together: one on a CPU, as many as fit on a GPU."""
        return blocks.at_once(self)[1]

    def alike(self, settings: Mapping[str, Any]) -> tuple[int, ...]:
        """Return a key of a point: points with near keys waste least when they train together."""
        columns = {name: [value] for name, value in settings.items()}
        (work,) = self.training.works(columns, 1)
        return room(self, work.batch_size), work.epochs, work.steps

    @property
    def device(self) -> str:
        """Where it trains in this process: cpu or cuda."""
        return blocks.device_of(self)

    def data_to_send(self) -> Dataset:
        """Return the data set, for processes that have no file of it."""
        return load(self.data)

    def take_data(self, data: Dataset) -> None:
        """Train on a data set that was sent, whatever files are here."""
        take(self.data, data)

    @property
    def measures(self) -> dict[str, Measure]:
        """Every measure there is, those of the user's own among them."""
        return measures_of(self.own_measures)

    @property
    def own_measures(self) -> tuple[str, ...]:
        """The measures of the user's own that are asked for, as package.module:function.

        For the worst client's share, @worst is behind it.
        """
        return tuple(name for name in self.asked if ":" in name)

    @property
    def asked(self) -> tuple[str, ...]:
        """The measures that objectives and limits ask for, each once."""
        return tuple(dict.fromkeys(judge.measure for judge in judges(self)))

    def facts(self, seed: int) -> dict[str, Any]:
        """Return what looking at rows needs of the data; seed is that of the first repeat."""
        split = [] if self.private else self.split_table(seed)[:MOST_CLIENTS].tolist()
        sizes = fixed_sizes(self.data) if isinstance(self.local, ClipsRecords) else ()
        return {**asdict(Facts.of(load(self.data))), "split": split, "sizes": sizes}

    def recalling(self, facts: Mapping[str, Any]) -> Federation:
        """Return the federation to look at by what was kept of its data."""
        return replace(self, kept=Facts.read(facts))

    @property
    def loss(self) -> Objective | None:
        """The first objective that judges models: an error, a loss, or a measure of one's own."""
        known = self.measures
        return next((o for o in self.objectives if known[o.measure].judges), None)

    @property
    def loss_measure(self) -> str:
        """The measure of the loss that baselines have too: of what protection costs, the whole."""
        asked = self.loss.measure if self.loss else ""
        needs = self.measures[asked].needs if asked else ()
        return next((name for name, without in LOST.items() if without in needs), asked)

    def trivial(self, seeds: Sequence[int]) -> list[dict[str, float]]:
        """Return the measures of the best constant answer in each of these repeats."""
        return baselines.trivial(self, seeds)

    def unprotected(self) -> Federation | None:
        """Return the same federation without protection; None where data are private."""
        return baselines.unprotected(self)

    def examples(self) -> int:
        """How many records there are for training."""
        return (self.kept or Facts.of(load(self.data))).images

    def split_table(self, seed: int) -> NDArray[np.int64]:
        """Return how many training images of each class each client holds in a repeat, [K,C].

        C is 1 where numbers are predicted. By what is kept of the data, it is that of the first
        clients in the first repeat.
        """
        if self.kept is not None:
            return np.array(self.kept.split, dtype=np.int64)
        if self.looked_at and self.data.own:
            raise DataError(f"{self.data.name}: must be run to say who holds what, found unrun.")
        data = load(self.data)
        split = blocks.setup_of(self, seed).train_split()
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
        if is_unseen(self.mechanism):
            return None
        return promises.promise(self, settings, view)

    def search_guarantee(
        self, tried: Sequence[Mapping[str, Any]], repeats: int, budget: int, chosen: str
    ) -> Guarantee | None:
        """Return what a search promises that trains each of these points so many times.

        chosen says how it comes by its points, see `privacy.CHOSEN`.
        """
        if is_unseen(self.mechanism):
            return None
        return promises.search_promise(self, tried, repeats, budget, chosen)

    def known(self, values: Values, names: Sequence[str] | None = None) -> Measured:
        """Return the measures that follow from the settings alone, name → [n].

        Those of objectives and limits unless others are named.
        """
        asked = set(self.asked if names is None else names)
        if self.looked_at:
            return known_unrun(self, values, asked)
        return measuring.known(self, values, asked)

    def measure(self, values: Values, seeds: Sequence[int]) -> Measured:
        """Train the federations of these settings, name → [n], and return measures, name → [n]."""
        return measuring.measured(self, values, seeds)[0]

    def measure_along(self, values: Values, seeds: Sequence[int]) -> tuple[Measured, Measured]:
        """Return every measure, name → [n], and those asked for after each round, name → [n,T]."""
        return measuring.measured(self, values, seeds, self.asked)

    def every_round(
        self, values: Values, seeds: Sequence[int], names: Sequence[str] | None = None
    ) -> Measured:
        """Return measures after every round, name → [n,T]; all unless named.

        A run of T rounds is a run of each t < T too.
        """
        asked = names
        if asked is None:
            asked = measuring.measurable(self, self.columns(values, len(seeds)))
        return measuring.measured(self, values, seeds, asked)[1]

    def train(
        self,
        settings: Mapping[str, Any],
        seed: int,
        observer: Observer | None = None,
        more: int = 0,
    ) -> tuple[nn.Module, dict[str, float]]:
        """Train one point; return the model, ready to use, and what `measure` says of it.

        more is how many clients an observer may force into a round beyond those drawn.
        """
        from fedpareto.federation.keeping import kept_model

        values = {name: [settings[name]] for name in self.space.names}
        (own,) = blocks.row_seeds(self, values, [seed])
        state, measures = measuring.trained_point(self, values, own, observer, more)
        module = kept_model(blocks.setup_of(self, own), self._model_of(settings), state)
        return module, measures

    def module(self, settings: Mapping[str, Any], seed: int = 0) -> nn.Module:
        """Return the model of one point, untrained: what the weights of `train` load into."""
        return blocks.setup_of(self, seed).module(self._model_of(settings))

    def _model_of(self, settings: Mapping[str, Any]) -> Model:
        """Return the model with the widths of one point."""
        return fixed(self.model, lambda v: settings[v.name])
