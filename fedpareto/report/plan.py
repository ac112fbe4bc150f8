"""The choices of `fedpareto plan` as a table, as sentences and as a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fedpareto.privacy import (
    Guarantee,
    Planned,
    Privacy,
    delta_text,
    guarantee,
    record_guarantee,
    rounded_up,
)
from fedpareto.privacy.plan import hidden_by, seen_by, sizes_of
from fedpareto.report.figures import save
from fedpareto.report.privacy import as_in_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 24  # characters of the longest bar


def plan_data(choices: Sequence[Planned]) -> dict[str, Any]:
    """Return the choices as a dictionary, the form of `fedpareto plan --json`."""
    return {"choices": [asdict(c) for c in choices]}


def on_the_mean(choice: Planned, batch: int | None = None) -> float:
    """Return the noise on the mean of a round's uploads; of a step's records, where those train.

    A step divides the sum of its records by their number, and a round the sum of its clients.
    """
    return choice.sigma / (batch or 1) / math.sqrt(choice.cohort)


def best_row(choices: Sequence[Planned], target: float) -> int | None:
    """Return the number of the row with the least noise on the mean that holds ε; None for none."""
    holding = [i for i, c in enumerate(choices) if c.epsilon <= target * (1 + 1e-9)]
    best = min(holding, key=lambda i: on_the_mean(choices[i]), default=None)
    return None if best is None else best + 1


def plan_table(
    choices: Sequence[Planned], batch: int | None = None, best: int | None = None
) -> Table:
    """Return the choices as a table; its bars are the noise on the mean of a round.

    That noise is what training feels: the row with the least of it that holds ε is starred.
    """
    out = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "",
        "cohort",
        "rounds",
        "noise_multiplier",
        "sigma",
        "clipping_norm",
        "ε",
        "δ",
        "view",
    ):
        out.add_column(heading, justify="right", no_wrap=True)
    out.add_column("noise on the mean", no_wrap=True)
    noise = [on_the_mean(c, batch) for c in choices]
    for i, c in enumerate(choices):
        bar = "█" * max(1, round(WIDTH * noise[i] / max(noise)))
        out.add_row(
            "★" if i + 1 == best else "",
            str(c.cohort),
            str(c.rounds),
            rounded_up(c.noise_multiplier),
            rounded_up(c.sigma),
            f"{c.clipping_norm:g}",
            rounded_up(c.epsilon),
            delta_text(c.delta),
            c.view if batch is None else "any",
            f"{bar} {noise[i]:.3g}",
        )
    return out


def plan_statements(
    choices: Sequence[Planned], asked: Mapping[str, Any], row: int = 1
) -> list[str]:
    """Return what a row promises and on what conditions; asked holds what was given to `plan`."""
    chosen = choices[row - 1]
    called = "The first row" if row == 1 else f"Row {row}"
    if asked["records"] is not None:
        return _said(called, chosen, _of_records(chosen, asked))
    names = ("view", "unit", "adjacency", "dropouts", "colluders")
    privacy = Privacy(target_delta=chosen.delta, **{name: asked[name] for name in names})
    seen = seen_by(
        chosen.view,
        chosen.sigma,
        chosen.clipping_norm,
        chosen.cohort,
        asked["clients"],
        asked["sampling"],
    )
    return _said(called, chosen, guarantee(privacy, **seen.terms(chosen.rounds)))


def _said(called: str, chosen: Planned, promised: Guarantee) -> list[str]:
    """Return a promise in words, with the ε that the row shows, as a study's point has it."""
    promised = as_in_row(promised, {"epsilon": chosen.epsilon})
    return [f"{called}: {promised.statement()}", *promised.notes]


def _of_records(chosen: Planned, asked: Mapping[str, Any]) -> Guarantee:
    """Return what a row promises each record of a client that trains by DP-SGD."""
    batch, steps = asked["batch_size"], asked["local_steps"]
    sizes = sizes_of(asked["clients"], asked["records"])
    return record_guarantee(
        Privacy(chosen.view, chosen.delta, unit="record", adjacency=asked["adjacency"]),
        hidden_by(chosen.noise_multiplier, chosen.clipping_norm, sizes, batch, steps),
        rounds=chosen.rounds,
        clients=asked["clients"],
        cohort=chosen.cohort,
        sampling=asked["sampling"],
        people=sum(sizes),
    )


def plan_figure(choices: Sequence[Planned], path: Path, batch: int | None = None) -> Path:
    """Draw the noise on the mean of a round against rounds, a line per cohort; return the path.

    With batch, that of a step's records, whoever looks on.
    """

    def draw(axes: Axes, found: Sequence[Planned]) -> None:
        for cohort in sorted({c.cohort for c in found}):
            mine = sorted((c.rounds, on_the_mean(c, batch)) for c in found if c.cohort == cohort)
            axes.plot(*zip(*mine, strict=True), marker="o", label=f"{cohort} clients a round")
        epsilon = rounded_up(max(c.epsilon for c in found))
        view = "any" if batch else found[0].view
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="rounds",
            ylabel=f"noise on the mean of a {'step' if batch else 'round'}",
            title=f"ε ≤ {epsilon}, δ = {delta_text(found[0].delta)}, view {view}",
        )
        axes.legend(frameon=False)

    return save(draw, choices, path)
