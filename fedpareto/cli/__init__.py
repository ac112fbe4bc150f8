"""The command line. Commands import what they need when they run, so that --help is quick."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

import click

from fedpareto.cli import (  # noqa: F401  (their commands)
    auditing,
    counting,
    deploying,
    keys,
    planning,
    reports,
    reproduce,
    rescuing,
    starting,
    studies,
    training,
)
from fedpareto.cli.base import cli
from fedpareto.errors import FedparetoError
from fedpareto.words import IN_ASCII, visible_lines

__all__ = ["cli", "main"]


def main() -> None:
    """Run the command line; every error is one line and status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a letter that the terminal lacks is no reason to fail
            stream.reconfigure(errors=IN_ASCII)
    try:
        status = _called()
    except click.exceptions.Abort:
        _fail("stopped. What was finished is kept; the same command goes on from there.", 130)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except FedparetoError as error:
        _fail(str(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = error.filename or "output"
        _fail(f"{where}: must be readable and writable, found: {error.strerror}.", 2)
    except Exception as error:
        from fedpareto.settings import blamed

        words = blamed(error)
        if words is None:  # a fault of ours, of which the whole is of use
            raise
        _fail(words, 2)
    sys.exit(status)


def _called() -> int:
    """Run the command and return its status; only code of the user's own ends it otherwise."""
    stdout = sys.stdout
    try:
        status = cli.main(standalone_mode=False)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        if sys.stdout is not stdout:  # click ends the program so where nobody reads on
            raise BrokenPipeError from error
        raise FedparetoError(
            "run: code of your own must return, found that it ended the program by "
            f"{type(error).__name__}: {error}. Let it raise an error in its place."
        ) from error
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> NoReturn:
    """Print an error and leave with this status."""
    click.echo(visible_lines(f"error: {message}"), err=True)
    sys.exit(status)
