"""The command that saves what can be read of a damaged database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedpareto.cli.base import cli, db_option, say, study_argument

if TYPE_CHECKING:
    from fedpareto.rescue import Rescued

MOST = 20  # damaged rows that are listed one by one


@cli.command()
@study_argument
@db_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The new database; the damaged one's name with -rescued if left out.",
)
def rescue(study_file: Path, db: Path | None, output: Path | None) -> None:
    """Copy what can be read of a damaged database into a new one, and list the rest.

    The damaged file stays as it is, and nothing is overwritten. The study goes on with the new one.
    """
    from fedpareto.loop import database
    from fedpareto.rescue import rescue as save
    from fedpareto.study import load_study

    path = database(load_study(study_file), db)
    output = output or path.with_name(f"{path.stem}-rescued.db")
    done = save(lambda seed: load_study(study_file, seed=seed), path, output)
    for line in _told(done, path):
        say(line)
    say(f"Go on with it: fedpareto run {study_file} --db {output}")


def _told(done: Rescued, damaged: Path) -> list[str]:
    """Return what the user must know of a rescue, line by line."""
    finished = sum(row["state"] != "pending" for row in done.trials)
    lines = [
        f"{done.path}: {len(done.trials)} trials, {finished} of them finished, and "
        f"{len(done.repeats)} trainings, copied from {damaged}, which was left as it is"
    ]
    if done.lost:
        lines.append("found damaged, or not at all:")
        lines += [f"  {line}" for line in done.lost[:MOST]]
        if len(done.lost) > MOST:
            lines.append(f"  and {len(done.lost) - MOST} more")
    if done.pending:
        lines.append(f"to be trained again, since trainings are lost: {_numbers(done.pending)}")
    if done.proposed:
        lines.append(f"proposed again, since their rows are lost: {_numbers(done.proposed)}")
    if done.aside:
        lines.append(
            f"left behind, since {done.why_aside}: {_numbers(done.aside)}. A run proposes and "
            "trains them again, to the same rows"
        )
    return lines


def _numbers(trials: Sequence[int]) -> str:
    """Return the numbers of trials as text: ranges where many follow one another."""
    ranges: list[list[int]] = []
    for number in trials:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    parts = [str(low) if low == high else f"{low} to {high}" for low, high in ranges]
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(parts)}"
