"""What a ledger says, in sentences: for the command line and for the card of the final model."""

from __future__ import annotations

from pathlib import Path

from fedpareto.deploy.happened import unplanned
from fedpareto.deploy.ledger import read
from fedpareto.deploy.pricing import Prices, judged, price
from fedpareto.deploy.rows import Attempt, History
from fedpareto.privacy.statement import SEES, delta_text, rounded_up

MOST = 5  # what was not as planned that is told one by one


def words(ledger: str | Path | History, prices: Prices | None = None) -> list[str]:
    """Return what a ledger says, in sentences; prices are those of `price`, if known already."""
    history = ledger if isinstance(ledger, History) else read(ledger)
    prices = price(history) if prices is None else prices
    held = history.header["terms"]
    level = f"{held['unit']} level, δ = {delta_text(held['delta'])}"
    lines = [_counted(history)]
    lines += [
        f"{_priced(of['epsilon'], of['planned'])} ({level}, view {view}: {SEES[view]})."
        for view, of in prices.items()
    ]
    if history.header["side"] == "client":
        lines.append(
            "This is the ledger of one client: it counts what that client sent, each upload seen "
            "alone. Only the server's tells what others added to a sum."
        )
    lines += off_the_plan(history)
    if history.torn:
        lines.append(
            f"Half a row that a kill left was cut off ({history.torn} in all). What it was about "
            "is priced as begun and not ended."
        )
    return [*lines, f"Last row: {history.last[:16]}. Compare it with the other side's copy."]


def off_the_plan(history: History) -> list[str]:
    """Return what was not as planned, the first few one by one."""
    plan = judged(history)
    found = [
        f"Round {one.round + 1}{_which(one)}: {why}."
        for one in history.attempts
        for why in [*_unended(one), *unplanned(plan, one)]
    ]
    rounds, most = len({one.round for one in history.attempts}), history.header["terms"]["rounds"]
    if rounds > most:
        found.insert(0, f"{rounds} rounds were run, {most} were planned.")
    more = len(found) - MOST
    return found[:MOST] + ([f"And {more} more that were not as planned."] if more > 0 else [])


def _unended(one: Attempt) -> list[str]:
    return [] if one.ended else ["begun and not ended; counted as if all asked had answered"]


def _which(one: Attempt) -> str:
    return f", attempt {one.attempt}" if one.attempt > 1 else ""


def _counted(history: History) -> str:
    """Say how many rounds and attempts there were."""
    done, attempts = len(history.done), len(history.attempts)
    planned = history.header["terms"]["rounds"]
    more = f", {attempts - done} more attempts" if attempts > done else ""
    return f"{done} of {planned} planned rounds ended{more}."


def _priced(epsilon: float | None, planned: float | None) -> str:
    """Say what was spent beside what was planned."""
    if epsilon is None:
        return "ε is infinite or unknown: nothing bounds it" + _beside(planned)
    return f"ε = {rounded_up(epsilon)} spent{_beside(planned)}"


def _beside(planned: float | None) -> str:
    return "" if planned is None else f", {rounded_up(planned)} planned"
