"""Everything fedpareto raises on purpose.

FedparetoError
├── SettingError      a value given from Python or the command line does not hold
│   └── CapacityError so many values do not fit one ciphertext
├── StudyError        a study file has faults; carries all of them
├── StoreError        the study's database cannot be used
│   ├── ChangedStudy  the database belongs to another version of the study
│   ├── DamagedStore  what the database holds is not what was written
│   └── LockedStore   another process is using it
├── OutputError       a file cannot be written as asked
├── DataError         data cannot be found, read or split as asked
├── ModelError        a model cannot be built or trained as asked
├── EncryptionError   keys or ciphertexts cannot be used as asked
│   ├── BadKey        a key is weak, malformed, unprotected or another one
│   ├── BadCiphertext a ciphertext is damaged, foreign or has too many summands
│   └── DecodeOverflow what was decrypted cannot be a sum of updates
└── MissingPackage    an optional package is needed

A message reads: where: what must hold, what was found. What to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class FedparetoError(Exception):
    """Anything fedpareto raises on purpose."""


class SettingError(FedparetoError):
    """A value given from Python or the command line does not hold."""


class CapacityError(SettingError):
    """So many values do not fit one ciphertext."""


class StoreError(FedparetoError):
    """The study's database cannot be used."""


class ChangedStudy(StoreError):
    """The database belongs to another version of the study."""


class DamagedStore(StoreError):
    """What the database holds is not what was written."""

    def __init__(self, path: object, found: str) -> None:
        found = found.encode("utf-8", "backslashreplace").decode()  # damage may not be printable
        super().__init__(
            f"{path}: must hold what was written, found damage: {found}. It was left as it is. "
            "Take a copy that was kept, or copy what can be read into a new database: "
            "fedpareto rescue STUDY"
        )


class LockedStore(StoreError):
    """Another process is using the database."""


class OutputError(FedparetoError):
    """A file cannot be written as asked."""


class DataError(FedparetoError):
    """Data cannot be found, read or split as asked."""


class ModelError(FedparetoError):
    """A model cannot be built or trained as asked."""


class EncryptionError(FedparetoError):
    """Keys or ciphertexts cannot be used as asked."""


class BadKey(EncryptionError):
    """A key is weak, malformed, unprotected or another one."""


class BadCiphertext(EncryptionError):
    """A ciphertext is damaged, foreign or has too many summands."""


class DecodeOverflow(EncryptionError):
    """What was decrypted cannot be a sum of updates."""


class MissingPackage(FedparetoError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it: pip install 'fedpareto[{extra}]'"
        )


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a study file."""

    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        if self.line:
            return f"line {self.line}, {self.key}: {self.message}"
        return f"{self.key}: {self.message}"


class StudyError(FedparetoError):
    """A study file has faults; all of them are listed."""

    def __init__(self, path: str, faults: Sequence[Fault]) -> None:
        self.path = path
        self.faults = tuple(faults)
        if len(self.faults) == 1:
            super().__init__(f"{path}: {self.faults[0]}")
        else:
            lines = "".join(f"\n  {fault}" for fault in self.faults)
            super().__init__(f"{path}: {len(self.faults)} faults{lines}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that offers the closest known name, or lists them all."""
    known = sorted(known)
    if not known:
        return "It takes none."
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(known)}."
