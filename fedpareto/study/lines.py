"""Find the line of a study file on which each key stands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from fedpareto.study.table import joined

TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # texts over lines, which may end in quotes of their own
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|\#[^\n]*"  # a comment
    r"|[\[\]{}=,.\n]"
    r"|[^\s\[\]{}=,.\#\"']+",  # bare keys, numbers, dates
    re.DOTALL,
)
ENDS = frozenset("[]{}=,\n")  # what a key ends at
END = "", 0  # follows the last token


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of a dotted key, or of the nearest table around it; None if there is none."""
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return lines.get(key)


def lines_of(text: str) -> dict[str, int]:
    """Return the line of every key of a valid TOML text, by its dotted path: key → line from 1.

    Elements of lists are numbered from 1, whether they are written as [[links]] or as
    links = [{...}, {...}]: mechanism.links.2.bits.
    """
    return _Scan(text).lines


def longest_key(text: str) -> int:
    """Return of how many parts the longest dotted key consists, or a bit more; for any text.

    Reading keys of thousands of parts takes time that grows with the square of their number.
    """
    longest = dots = 0
    for found in TOKEN.finditer(text):
        if found[0] == ".":
            dots += 1
            longest = max(longest, dots)
        elif found[0] in ENDS:
            dots = 0
    return longest + 1


class _Scan:
    """One pass over the tokens of a TOML text that tomllib has read without a fault."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, int] = {}
        self._elements: Counter[str] = Counter()  # how many [[tables]] of each path there were
        self._tokens = _tokens(text)
        self._next = next(self._tokens, END)
        self._document()

    def _take(self) -> tuple[str, int]:
        """Return the next token and its line, and go on to the one after it."""
        taken = self._next
        self._next = next(self._tokens, END)
        return taken

    def _document(self) -> None:
        table = ""
        while self._next != END:
            if self._next[0] == "\n":
                self._take()
            elif self._next[0] == "[":
                table = self._header()
            else:
                self._entry(table)

    def _header(self) -> str:
        """Read [a.b] or [[a.b]] and return the path of the table that it opens."""
        _, line = self._take()
        element = self._next[0] == "["
        if element:
            self._take()
        *above, last = self._key("]")
        path = ""
        for part in above:
            path = joined(path, part)
            self.lines.setdefault(path, line)
            if path in self._elements:  # [a.b] stands within the last [[a]]
                path = joined(path, str(self._elements[path]))
        path = joined(path, last)
        if element:
            self._take()
            self.lines.setdefault(path, line)
            self._elements[path] += 1
            path = joined(path, str(self._elements[path]))
        self.lines[path] = line
        return path

    def _entry(self, table: str) -> None:
        """Read key = value."""
        line = self._next[1]
        path = table
        for part in self._key("="):
            path = joined(path, part)
            self.lines.setdefault(path, line)
        self._value(path)

    def _key(self, end: str) -> list[str]:
        """Read the parts of a dotted key, and what ends it."""
        parts = []
        while self._next[0] not in (end, ""):
            token, _ = self._take()
            if token != ".":
                parts.append(_bare(token))
        self._take()
        return parts

    def _value(self, path: str) -> None:
        """Read a value, with the keys and elements in it."""
        opened = self._next[0]
        if opened not in ("[", "{"):
            while self._next[0] not in ("\n", ",", "]", "}", ""):
                self._take()
            return
        self._take()
        place = 0
        while self._next[0] not in ("]", "}", ""):
            if self._next[0] in (",", "\n"):
                self._take()
            elif opened == "{":
                self._entry(path)
            else:
                place += 1
                element = joined(path, str(place))
                self.lines[element] = self._next[1]
                self._value(element)
        self._take()


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield each token with the line on which it begins; comments are left out."""
    line = 1
    for found in TOKEN.finditer(text):
        token = found[0]
        if not token.startswith("#"):
            yield token, line
        line += token.count("\n")


def _bare(token: str) -> str:
    """Return a part of a key without its quotes."""
    return token[1:-1] if token[0] in "\"'" else token
