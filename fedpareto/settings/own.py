"""Find, name and import what a user names by a dotted path, such as "package.module:Name".

Nothing of a module runs before it is clear that it may: its file is found without an import, and it
must lie beside the study file or say by FEDPARETO_PARTS, which is read and not run, what of it are
parts of studies.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import keyword
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from fedpareto.errors import SettingError, guarded, shown, told
from fedpareto.settings.beside import announce, folders, may_be_found, spec_beside

DECLARED = "FEDPARETO_PARTS"  # a list of names at the top of a module
PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
HELP = "Install the package that holds it, or put the module beside the study file."

_loaded: dict[str, tuple[ModuleType, Any]] = {}  # names that were imported already


@dataclass(frozen=True)
class Source:
    """Where a part of the user's own comes from; its module has not been imported for this."""

    name: str
    module: str
    attribute: str
    file: Path
    beside: bool  # whether it lies beside a study file

    @property
    def hash(self) -> str:
        """The SHA-256 of its file."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()


def own_hashes(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the file of each name of the user's own; nothing is imported."""
    return {name: source_of(name).hash for name in names}


def own_loaded() -> list[str]:
    """Return the names of the user's own that were imported from files in this process."""
    return [name for name, (module, _) in _loaded.items() if getattr(module, "__file__", None)]


def is_own(name: object) -> bool:
    """Say whether a name is a dotted path to something of the user's own."""
    return isinstance(name, str) and ":" in name


def imported(name: str) -> Any:
    """Return the class or function that a dotted path "package.module:Name" names."""
    module, found = _loaded.get(name, (None, None))
    if module is not None and sys.modules.get(module.__name__) is module:
        return found
    made = sys.modules.get(name.partition(":")[0])
    if made is not None and getattr(made, "__spec__", None) is None and made.__name__ != "__main__":
        return _attribute(name, made)  # made in Python, without a file: no study file may name it
    module, found = _imported(source_of(name))
    _loaded[name] = module, found
    return found


def _attribute(name: str, module: ModuleType) -> Any:
    try:
        return getattr(module, name.partition(":")[2])
    except AttributeError as error:
        raise _missing(name, told(error)) from error


def function_of(name: str) -> Callable[..., Any]:
    """Return the function that a dotted path names."""
    found = imported(name)
    if not callable(found) or isinstance(found, type):
        raise SettingError(f"{name!r} must be a function, found {shown(found)}.")
    return found  # type: ignore[no-any-return]


def check_source(name: str, folder: Path) -> None:
    """Refuse a path to what lies neither beside the study file nor in a module that declares it.

    This is for names in study files, which may come from others. Nothing is imported.
    """
    source = source_of(name)
    beside = source.beside and root_of(source) == folder.resolve()
    if not beside and source.attribute not in _declared(source.file):
        raise _undeclared(source)


def source_of(name: str) -> Source:
    """Return where a dotted path leads; refuse Python's own and packages that declare no parts."""
    parts = PATH.fullmatch(name)
    if not parts or len(name) > 300 or any(map(keyword.iskeyword, re.split(r"[.:]", name))):
        raise SettingError(
            f"{shown(name)} must read package.module:Name, names of letters, digits and underscores"
            ", found another text."
        )
    module, attribute = parts.groups()
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("fedpareto", "__main__", "__mp_main__"):
        whose = "fedpareto's own" if top == "fedpareto" else "Python's own"
        raise SettingError(
            f"{name!r} must be in a module of yours, found {top}, which is {whose}. Nothing of it "
            "was run. Put what you need into a module beside the study file."
        )
    file = _file_of(name, module)
    source = Source(name, module, attribute, file, False)
    if root_of(source) in folders():
        may_be_found(module)
        return Source(name, module, attribute, file, True)
    if _is_installed(file) and attribute not in _declared(file):
        raise _undeclared(source)
    return source


def _undeclared(source: Source) -> SettingError:
    return SettingError(
        f"{source.name!r} must be in a module beside the study file, or in one that lists it in "
        f"{DECLARED}, found {source.file}, which does not. Nothing of it was run. "
        f'Write {DECLARED} = ["{source.attribute}"] into it if it is a part of studies.'
    )


def _file_of(name: str, module: str) -> Path:
    """Return the file of a module without importing anything."""
    spec: ModuleSpec | None = None
    path = ""
    for part in module.split("."):
        path = f"{path}.{part}" if path else part
        spec = spec_of(path, spec)
        if spec is None:
            raise _missing(name, f"ModuleNotFoundError: No module named {path!r}")
    assert spec is not None
    if not spec.has_location or spec.origin is None or not Path(spec.origin).is_file():
        raise _missing(name, f"no file of {module!r}")
    file = Path(spec.origin)
    return file.parent.resolve() / file.name  # a link lies where it was put


def spec_of(path: str, parent: ModuleSpec | None) -> ModuleSpec | None:
    """Return how a module would be found, given how its package was; nothing is imported."""
    try:
        if parent is None:
            # of a module without dots: imports nothing
            return importlib.util.find_spec(path) or spec_beside(path)
        places = parent.submodule_search_locations
        return None if places is None else PathFinder.find_spec(path, list(places))
    except (ImportError, ValueError, OSError):
        return None


def _missing(name: str, found: str) -> SettingError:
    return SettingError(f"{name!r} must be importable, found {found}. {HELP}")


def root_of(source: Source) -> Path:
    """Return the folder in which the module, or the package it is in, was found."""
    depth = source.module.count(".") + (source.file.stem == "__init__")
    return source.file.parents[depth]


@functools.cache
def _installed() -> tuple[Path, ...]:
    """Return the folders of Python's own modules and of installed packages."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(Path(place).resolve() for place in found)


def _is_installed(file: Path) -> bool:
    return any(place in file.parents for place in _installed())


def _declared(file: Path) -> frozenset[str]:
    """Return the names that a module lists as parts of studies; its text is read, not run."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else ()
        if any(isinstance(t, ast.Name) and t.id == DECLARED for t in targets):
            assert isinstance(line, ast.Assign)
            return _texts(line.value)
    return frozenset()


def _texts(value: ast.expr) -> frozenset[str]:
    """Return the texts of a list or tuple as it is written."""
    parts = value.elts if isinstance(value, ast.List | ast.Tuple) else []
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    return frozenset(text for text in texts if isinstance(text, str))


def _imported(source: Source) -> tuple[ModuleType, Any]:
    """Import a module, say so the first time, and return it with what of it is named."""
    announce(source.file, source.file.read_bytes())
    name = source.name
    try:
        with guarded():
            module = importlib.import_module(source.module)
            found = getattr(module, source.attribute)
    except Exception as error:
        raise _missing(name, told(error)) from error
    file = getattr(module, "__file__", None)
    if file is None or Path(file).resolve() != source.file.resolve():
        raise _missing(name, f"another module of that name, from {shown(file)}")
    home = getattr(found, "__module__", source.module)
    if source.beside and str(home).partition(".")[0] != source.module.partition(".")[0]:
        raise SettingError(
            f"{name!r} must be defined in {source.module}, found one of {shown(home)} that it "
            "imports. Write a class or function of your own that uses it."
        )
    return module, found
