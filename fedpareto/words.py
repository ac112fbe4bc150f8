"""Text that a user or a file supplies, shown as text: nothing in it acts on what shows it."""

from __future__ import annotations

import unicodedata

# Other (control, format, surrogate, unassigned aside) and the separators that end a line.
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
JOINERS = "\u200c\u200d"  # letters of some scripts need them, and they move nothing


def visible(text: object) -> str:
    """Return a text on one line, with what cannot be seen, or moves what can, as \\uXXXX."""
    found = str(text)
    if found.isascii() and found.isprintable():
        return found
    return "".join(map(_seen, found))


def visible_lines(text: object) -> str:
    """Return a text in which only ends of lines are kept of what cannot be seen."""
    return "\n".join(map(visible, str(text).split("\n")))


def _seen(letter: str) -> str:
    """Return one character, or its number where it cannot be seen."""
    if letter in JOINERS or unicodedata.category(letter) not in HIDDEN:
        return letter
    number = ord(letter)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
