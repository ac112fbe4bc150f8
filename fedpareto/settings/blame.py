"""Say of an error where in code of the user's own it arose."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from fedpareto.errors import told
from fedpareto.settings.beside import announced
from fedpareto.words import visible


def blamed(error: BaseException) -> str | None:
    """Return an error that code of the user's own may have caused as words; None if none was run.

    Either it was raised there, or what a part gives or takes is not what its contract says.
    """
    if not announced():
        return None
    must = "work" if _place(error) else "keep the contract of each part"
    return (
        f"run: code of your own must {must}, found {placed(error)}. Try each part with its check "
        "in fedpareto.testing."
    )


def placed(error: BaseException) -> str:
    """Return an error as one line, with the place in the user's own code where it arose."""
    place = _place(error)
    return f"{told(error)}, in {visible(place)}" if place else told(error)


def _place(error: BaseException) -> str:
    """Return the last line of the user's own code that an error, or its cause, came through."""
    files = announced()
    for one in _with_causes(error):
        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(one.__traceback__)]
        for code, line in reversed(frames):
            file = Path(code.co_filename)
            if file in files or file.parent.resolve() / file.name in files:
                return f"{file}, line {line}"
    return ""


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        yield found
        seen.append(found)
        found = found.__cause__ or found.__context__
