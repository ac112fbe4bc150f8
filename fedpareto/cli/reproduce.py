"""The command that reproduces figures and tables of the papers."""

from __future__ import annotations

from pathlib import Path

import click

from fedpareto.cli.base import cli, say


@cli.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "listed", is_flag=True, help="Show every name, its time and its result.")
@click.option(
    "--scale",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    show_default=True,
    help="Minutes on two cores, or the paper's own scale on one GPU.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("papers"),
    show_default=True,
    help="Where studies, rows, figures and numbers go, in a folder for each scale.",
)
def reproduce(names: tuple[str, ...], listed: bool, scale: str, output: Path) -> None:
    """Run the studies of a paper's figure or table, and compare; all of them without a NAME.

    It can be stopped or killed at any time: the same command goes on where it stood.
    """
    from fedpareto.reproduce import named
    from fedpareto.reproduce import reproduce as run_one

    if listed:
        _print_list()
        return
    chosen = named(names)
    total = sum(e.expected(scale) for e in chosen)
    say(f"{len(chosen)} names at {scale} scale, about {_time(total)} in all", err=True)
    for experiment in chosen:
        expected = _time(experiment.expected(scale))
        say(f"{experiment.name}: {experiment.title}, about {expected}", err=True)
        result = run_one(experiment, scale, output / scale)
        say(f"{experiment.name}  {result['verdict']}\n{result['paragraph']}")
        say(f"figure  {output / scale / result['figure']}\n")


def _print_list() -> None:
    """Print every name with its expected times and what is committed of it."""
    from fedpareto.reproduce import EXPERIMENTS, NAMES, committed

    say(f"{'name':19s} {'quick':>9s} {'paper':>9s}  committed")
    for name in NAMES:
        if name not in EXPERIMENTS:
            say(f"{name:19s} {'–':>9s} {'–':>9s}  has no studies yet")
            continue
        times = [_time(EXPERIMENTS[name].expected(scale)) for scale in ("quick", "paper")]
        result = committed(name)
        found = f"{result['scale']}: {result['verdict']}" if result else "nothing"
        say(f"{name:19s} {times[0]:>9s} {times[1]:>9s}  {found}")


def _time(seconds: float) -> str:
    """Return a stretch of time in words."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
