"""Let Python find what lies beside a study file: for code that a study names, and for no other.

The folder is not put where Python looks for modules. Libraries try to import packages that may not
be installed, such as pandas, and a file of that name beside a study would run though nobody named
it. Only modules that a study names are found there, and what these import themselves.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType

from fedpareto.words import visible

_folders: list[Path] = []  # of the study files that were read, the last first
_ours: set[str] = set()  # modules that may be found there, without what follows a dot
_said: set[tuple[Path, str]] = set()  # files and hashes that were named already


def import_from(folder: Path) -> None:
    """Let what is named in a study file be found in its folder, after every other place."""
    place = folder.resolve()
    _folders[:] = [place, *(one for one in _folders if one != place)]
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    importlib.invalidate_caches()


def folders() -> tuple[Path, ...]:
    """Return the folders of the study files that were read, the last first."""
    return tuple(_folders)


def spec_beside(name: str) -> ModuleSpec | None:
    """Return how a module beside a study file would be loaded; nothing is imported."""
    found = (_in(folder, name) for folder in _folders)
    return next((spec for spec in found if spec is not None), None)


def may_be_found(module: str) -> None:
    """Let a module that a study names be found, whoever imports it."""
    _ours.add(module.partition(".")[0])


def announce(file: Path, content: bytes) -> None:
    """Say once in a process, before it runs, which file of the user's own is run."""
    key = (file, hashlib.sha256(content).hexdigest())
    if key not in _said:
        _said.add(key)
        log = logging.getLogger("fedpareto")
        log.warning("runs your own code: %s, SHA-256 %s", visible(file), key[1])


def announced() -> frozenset[Path]:
    """Return every file of the user's own that was run in this process."""
    return frozenset(file for file, _ in _said)


def loaded_from(folder: Path) -> dict[str, str]:
    """Return the files in a folder that run as code of the user's own, each with its SHA-256."""
    place, found = folder.resolve(), {}
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is None or not isinstance(spec.loader, _Source | _Extension) or not spec.origin:
            continue
        file = Path(spec.origin)
        if place in file.parents:
            name = str(file.relative_to(place))
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


class _Source(SourceFileLoader):
    """Load source as it is announced, and no bytecode: anything could lie in __pycache__."""

    def get_code(self, fullname: str) -> CodeType:
        file = self.get_filename(fullname)
        content = self.get_data(file)
        announce(Path(file), content)
        return self.source_to_code(content, file)


class _Extension(ExtensionFileLoader):
    """Load an extension module that was announced."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        announce(Path(self.path), Path(self.path).read_bytes())
        return super().create_module(spec)


class _Finder(MetaPathFinder):
    """Find modules beside study files, where Python finds them nowhere else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if path is not None:  # a part of a package
            found = (_in(Path(place), fullname) for place in path if top in _ours)
            return next((spec for spec in found if spec is not None), None)
        if (top not in _ours and _importer() not in _ours) or _is_elsewhere(fullname):
            return None
        spec = spec_beside(fullname)
        if spec is not None:
            _ours.add(top)
        return spec


FINDER = _Finder()


def _in(folder: Path, name: str) -> ModuleSpec | None:
    """Return how a module in a folder would be loaded."""
    loaders = ((_Extension, EXTENSION_SUFFIXES), (_Source, SOURCE_SUFFIXES))
    return FileFinder(str(folder), *loaders).find_spec(name)


def _is_elsewhere(name: str) -> bool:
    """Say whether Python finds a module without this."""
    others = [one for one in sys.meta_path if one is not FINDER]
    return any(one.find_spec(name, None) is not None for one in others)


def _importer() -> str:
    """Return the module that is importing, without what follows a dot."""
    frame = sys._getframe(2)
    while frame is not None:
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top not in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
            return top
        frame = frame.f_back  # type: ignore[assignment]
    return ""
