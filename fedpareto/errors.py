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
├── DeploymentError   a deployment cannot run so, or was asked for what was not agreed
├── LedgerError       a ledger of a deployment is not what was written, or may not go on so
├── DeviceLost        nothing more can be trained on a device by this process
└── MissingPackage    an optional package is needed
CodeEnded             the user's own code ended the program; it is shown as one of these

A message reads: where: what must hold, what was found. What to do.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

LONGEST = 300  # characters of what was found that a message shows
MOST = 100  # faults of a study file that are listed one by one


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


class DeploymentError(FedparetoError):
    """A deployment cannot run so, or was asked for what was not agreed."""


class LedgerError(FedparetoError):
    """A ledger of a deployment is not what was written, or may not go on so."""


class DeviceLost(FedparetoError):
    """A device refuses everything from now on in this process; another process may use it."""


class MissingPackage(FedparetoError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it: pip install 'fedpareto[{extra}]'"
        )


class CodeEnded(Exception):
    """The user's own code raised what ends programs, such as SystemExit; it is never shown so."""


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
            lines = "".join(f"\n  {fault}" for fault in self.faults[:MOST])
            more = len(self.faults) - MOST
            lines += f"\n  and {more} more" if more > 0 else ""
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


def clean(text: str, longest: int = 10 * LONGEST) -> str:
    """Return a text that can be stored and printed anywhere: no surrogates, nothing too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    text = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def shown(found: Any) -> str:
    """Return a value as a message shows it, however long or deep it is."""
    try:
        return clean(repr(found), LONGEST)
    except RecursionError:
        return f"a {type(found).__name__} too deep to print"
    except Exception:  # a whole number of more digits than Python prints, a repr of the user's own
        return f"a {type(found).__name__} that cannot be printed"


def told(error: BaseException) -> str:
    """Return an error as one line, its kind before its own words."""
    line = clean((_text(error).strip().splitlines() or ["no message"])[0])
    return line if isinstance(error, CodeEnded) else f"{type(error).__name__}: {line}"


def _text(error: BaseException) -> str:
    """Return an error's own words, which code of the user's own may not be able to say."""
    try:
        return str(error)
    except Exception:
        return "a message that cannot be read"


def out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    text = _text(error).lower()
    return "out of memory" in text or "can't allocate" in text


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Call the user's own code: what it raises to end the program is an error like any other.

    Ctrl-C still ends the program: it comes by a signal, which is noted on its way.
    """
    pressed: list[bool] = []
    with _noting_interrupts(pressed):
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            if pressed and isinstance(error, KeyboardInterrupt):
                raise
            raise CodeEnded(f"{type(error).__name__}: {_text(error) or 'no message'}") from error


@contextlib.contextmanager
def _noting_interrupts(pressed: list[bool]) -> Iterator[None]:
    """Note a Ctrl-C before it is handled as ever; signals reach the main thread alone."""
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or not callable(before):
        yield
        return

    def noted(number: int, frame: Any) -> None:
        pressed.append(True)
        before(number, frame)

    signal.signal(signal.SIGINT, noted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
