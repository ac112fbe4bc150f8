"""Points cut into blocks that train together, and trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.contract import cohort
from fedpareto.errors import SettingError
from fedpareto.federation.cohorts import taking_part
from fedpareto.federation.columns import Columns
from fedpareto.federation.data import load
from fedpareto.federation.setup import Setup, room
from fedpareto.federation.sizes import size_of
from fedpareto.noise import widened
from fedpareto.problem import part
from fedpareto.settings import fixed, largest, named
from fedpareto.space import Choice, Integer, Values, Variable

if TYPE_CHECKING:
    from fedpareto.federation.block import Block
    from fedpareto.federation.observer import Observer
    from fedpareto.federation.problem import Federation
    from fedpareto.federation.state import State
    from fedpareto.federation.trace import Trace

UNSAID = 20  # settings that train together at most, where the problem does not say how many
MEMORY = 4 * 2**30  # bytes that a block's stacked parameters, updates and noise may take
Rows = NDArray[np.int64]


def traces(
    problem: Federation,
    values: Values,
    given: Columns,
    seeds: Sequence[int],
    along: bool = False,
) -> Iterator[tuple[Rows, Trace]]:
    """Train points block by block; yield the rows of each block and what they showed.

    given is every numeric setting, name → [n], see `columns.given_of`. With along, measures
    of the user's own are taken after every round too.

    A block has one seed on a CPU; on a GPU, rows that repeat the same settings with other seeds
    join it. Where the problem says how large a block is, it is padded to that many settings, so
    that no row depends on how many there are; a study always says it. seeds are those of
    `row_seeds`.
    """
    rows_at_once, seeds_at_once = at_once(problem)
    if not _repeated(problem, values, seeds):
        seeds_at_once = 1
    done = 0
    for mine in _by_room(problem, given, len(seeds)):
        for places in grids([seeds[i] for i in mine], rows_at_once, seeds_at_once):
            grid = mine[places]  # [S,R] row numbers
            firsts = [seeds[rows[0]] for rows in grid]
            with part(done / len(seeds), grid.size / len(seeds)):
                trace, _ = trained(problem, values, given, grid, firsts, along=along)
            done += grid.size
            yield grid.flatten(), trace


def _by_room(problem: Federation, given: Columns, n: int) -> Iterator[Rows]:
    """Yield the rows whose mini-batches are filled up to the same size: they share blocks."""
    rooms = [room(problem, work.batch_size) for work in problem.training.works(given, n)]
    for size in dict.fromkeys(rooms):
        yield np.flatnonzero(np.array(rooms) == size)


def row_seeds(problem: Federation, values: Values, seeds: Sequence[int]) -> list[int]:
    """Return the seed that each row's random numbers come from, [n], given that of its repeat.

    Points of a repeat share it (common random numbers), unless data are private: the noise of two
    trainings that share it could be taken off. Then each point has its own, from its settings, so
    that the same point of the same repeat is the same training.
    """
    if not problem.private:
        return list(seeds)
    columns = [_written(v, values[v.name]) for v in problem.space.variables]
    rest = (load(problem.data).fingerprint, *_parts(problem))
    return [
        widened(seed, "private", *rest, *(column[i] for column in columns))
        for i, seed in enumerate(seeds)
    ]


def _parts(problem: Federation) -> list[str]:
    """Return what is trained and how, as text: other data or code must not have the same noise."""
    held = asdict(problem.data)
    dealt = [f"{key}={held[key]!r}" for key in held if key not in ("name", "directory")]
    parts = (problem.model, problem.training, problem.mechanism, problem.server, problem.local)
    return dealt + [f"{type(p).__module__}:{type(p).__qualname__} {p!r}" for p in parts]


def _written(variable: Variable, values: Sequence[Any]) -> list[str]:
    """Return values of a variable as text, the same for equal values of whatever type."""
    if isinstance(variable, Choice):
        return [f"{variable.name}={variable.choices.index(value)}" for value in values]
    kind = int if isinstance(variable, Integer) else float
    return [f"{variable.name}={kind(value)!r}" for value in values]


def trained(
    problem: Federation,
    values: Values,
    given: Columns,
    grid: Rows,
    seeds: Sequence[int],
    observer: Observer | None = None,
    along: bool = False,
    more: int = 0,
) -> tuple[Trace, State]:
    """Train one block, padded if need be; the trace has the rows of the grid [S,R] alone.

    more is how many clients an observer may force into a round beyond those drawn.
    """
    from fedpareto.federation.run import run

    full = at_once(problem)[0] if problem.block else grid.shape[1]
    padded = np.stack([np.resize(rows, full) for rows in grid])
    repeats = [setup_of(problem, seed, along) for seed in seeds]
    room = min(slots(problem, seeds) + more, problem.data.clients)
    trace, state = run(prepared(problem, values, given, padded[0], repeats, room), observer)
    starts = np.arange(len(grid))[:, None] * padded.shape[1]
    keep = starts + np.arange(grid.shape[1])
    return trace.rows(keep.flatten()), state


def prepared(
    problem: Federation,
    values: Values,
    given: Columns,
    rows: Rows,
    repeats: Sequence[Setup],
    room: int,
) -> Block:
    """Return the block of these rows, in every repeat, with room for so many clients a round."""
    import torch

    from fedpareto.federation.block import prepare

    settings = {name: torch.from_numpy(v[rows]).float() for name, v in given.items()}
    # a sample ratio stays in double precision: in float32, 0.35 of 10 clients were 3, not 4
    settings["sample_ratio"] = torch.from_numpy(given["sample_ratio"][rows])
    models = [fixed(problem.model, lambda v, i=i: values[v.name][i]) for i in rows]  # type: ignore[misc]
    return prepare(repeats, settings, models, room, device_of(problem))


def setup_of(problem: Federation, seed: int, along: bool = False) -> Setup:
    """Return what the federations of one repeat share."""
    return Setup(
        problem.data,
        problem.widest,
        problem.training,
        problem.mechanism,
        seed,
        problem.cost,
        problem.local,
        problem.server,
        problem.own_measures,
        along,
        problem.private,
        problem.kept,
        local_loss="xiao25_eq5" in problem.asked,
    )


def slots(problem: Federation, seeds: Sequence[int], ratio: float | None = None) -> int:
    """Return the most clients that any setting can ask for in a round of these repeats.

    Or that settings up to this sample ratio ask for.
    """
    training = problem.training
    ratio = float(largest(training.sample_ratio)) if ratio is None else ratio
    clients = problem.data.clients
    if training.sampling == "fixed":
        return int(cohort(ratio, clients))
    drawn = [
        int(taking_part(seed, t, clients, np.array([ratio]), "poisson")[0])
        for seed in seeds
        for t in range(int(largest(training.rounds)))
    ]
    return max([1, round(ratio * clients), *drawn])


def device_of(problem: Federation) -> str:
    """Return where to train: cpu or cuda."""
    wanted = problem.training.device
    if wanted == "cpu":
        return "cpu"
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise SettingError(
            "training.device: cuda must be there to be used, found no CUDA device. Use auto or cpu."
        )
    if not there:
        return "cpu"
    # torch says so once of the thread that takes slopes, and mends it itself
    warnings.filterwarnings("ignore", message=".*no current CUDA context")
    return "cuda"


def at_once(problem: Federation) -> tuple[int, int]:
    """Return how many settings, and how many repeats of them, train together.

    As many settings as the block has, less where they would not fit; on a GPU, then as many
    repeats as fit. On a CPU the figure follows from the study alone, so that every machine gives
    the same bits. On private data every training stands alone, with random numbers of its own.
    """
    if problem.private:
        return 1, 1
    data = load(problem.data)
    size, _ = size_of(problem.widest, data.shape, data.classes)  # type: ignore[arg-type]
    one = 16 * size * slots(problem, ())
    if "private_fraction" in named(problem.mechanism):
        one += 5 * size * problem.data.clients
    if device_of(problem) == "cpu":
        return max(1, min(problem.block or UNSAID, int(MEMORY / one))), 1
    import torch

    room = torch.cuda.get_device_properties(0).total_memory / 2
    rows = max(1, min(problem.block or UNSAID, int(room / one)))
    return rows, max(1, int(room / (one * rows)))


def _repeated(problem: Federation, values: Values, seeds: Sequence[int]) -> bool:
    """Say whether every seed has the same settings in the same order, so that they form a grid."""
    by_seed: dict[int, list[tuple[Any, ...]]] = {}
    for i, seed in enumerate(seeds):
        settings = tuple(values[name][i] for name in problem.space.names)
        by_seed.setdefault(seed, []).append(settings)
    return len(set(map(tuple, by_seed.values()))) == 1


def grids(seeds: Sequence[int], rows: int, repeats: int) -> Iterator[Rows]:
    """Yield grids [S,R] of row numbers: at most so many rows of one seed, of at most S seeds."""
    by_seed = [np.flatnonzero(np.asarray(seeds) == seed) for seed in dict.fromkeys(seeds)]
    if repeats > 1 and len({len(r) for r in by_seed}) == 1:
        whole = np.stack(by_seed)  # [seeds, rows of each]
        for i in range(0, len(whole), repeats):
            for j in range(0, whole.shape[1], rows):
                yield whole[i : i + repeats, j : j + rows]
        return
    for mine in by_seed:
        for i in range(0, len(mine), rows):
            yield mine[None, i : i + rows]
