"""The command that prices what a deployment really did."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fedpareto.cli.base import cli, json_option, say


@cli.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@json_option
def ledger(file: Path, as_json: bool) -> None:
    """Price what really happened in a deployment, in every view, beside the plan.

    FILE is the ledger that the server or a client of a deployment wrote. It may be in use.
    """
    from fedpareto.deploy.ledger import read
    from fedpareto.deploy.pricing import price
    from fedpareto.deploy.said import off_the_plan, words

    history = read(file)
    prices = price(history)
    if not as_json:
        say("\n".join(words(history, prices)))
        return
    header = history.header
    about = {name: header[name] for name in ("side", "client", "deployment")}
    attempts = len(history.attempts)
    counts = {"rounds": len(history.done), "attempts": attempts, "torn": history.torn}
    told = {"unplanned": off_the_plan(history), "last": history.last}
    say(json.dumps({**about, **counts, "ledger": prices, **told}))
