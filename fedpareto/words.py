"""Text that a user or a file supplies, shown as text: nothing in it acts on what shows it."""

from __future__ import annotations

import codecs
import shlex
import unicodedata
from collections.abc import Iterable
from html import escape

# Other (control, format, surrogate, unassigned aside) and the separators that end a line.
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# What is printed where a terminal or a file has no such letter.
ASCII = {
    **{"ε": "eps", "δ": "delta", "σ": "sigma", "ρ": "rho", "ξ": "xi", "²": "^2", "√": "sqrt "},
    **{"≤": "<=", "≥": ">=", "±": "+-", "×": "x", "·": "-", "–": "-", "—": "-", "…": "..."},
    **{"→": "->", "★": "*", "◆": "+", "█": "#", "▌": "|"},
    **{"α": "alpha", "μ": "mu", "τ": "tau", "₀": "0", "₁": "1", "₂": "2", "\u0302": "^"},
}
IN_ASCII = "fedpareto.in_ascii"  # the name of what does it, for streams
JOINERS = "\u200c\u200d"  # letters of some scripts need them, and they move nothing


def visible(text: object) -> str:
    """Return a text on one line, with what cannot be seen, or moves what can, as \\uXXXX."""
    found = str(text)
    if found.isascii() and found.isprintable():
        return found
    return "".join(map(_seen, found))


def visible_lines(text: object) -> str:
    """Return a text in which only ends of lines and tabs are kept of what cannot be seen."""
    lines = str(text).replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Return plain letters for those that an encoding lacks, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    plain = [ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking]
    return "".join(plain), error.end


codecs.register_error(IN_ASCII, _in_ascii)


def in_shell(word: object) -> str:
    """Return a word for a shell; what cannot be seen goes in by its number, as bash reads it."""
    found = str(word)
    if visible(found) == found:
        return shlex.quote(found)
    plain = found.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{visible(plain)}'"


def short(value: object) -> str:
    """Return a value as people read it: four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def notebook_table(title: object, rows: Iterable[tuple[object, object]]) -> str:
    """Return rows of a name and a value as an html table with a title, for a notebook."""
    lines = [
        f"<tr><th style='text-align:left'>{escape(visible(name))}</th>"
        f"<td style='text-align:left'>{escape(visible(value))}</td></tr>"
        for name, value in rows
    ]
    return f"<table><caption>{escape(visible(title))}</caption>{''.join(lines)}</table>"


def _seen(letter: str) -> str:
    """Return one character, or its number where it cannot be seen."""
    if letter in JOINERS or unicodedata.category(letter) not in HIDDEN:
        return letter
    number = ord(letter)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
