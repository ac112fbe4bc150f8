"""Find which files beside a study file its own modules import, inside functions too.

The text of a module is read; nothing of it runs.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path

from fedpareto.settings.own import spec_of


def files_imported(modules: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the files in a folder that modules are made of and import, each with its SHA-256."""
    place, found = folder.resolve(), {}
    waiting, seen = list(modules), set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for spec in _way(module):
            file = Path(spec.origin or "")
            file = file.parent.resolve() / file.name  # a link lies where it was put
            name = str(file.relative_to(place)) if place in file.parents else ""
            if name and name not in found:
                content = file.read_bytes()
                found[name] = hashlib.sha256(content).hexdigest()
                waiting += _names_in(content, spec) if file.suffix == ".py" else ()
    return found


def _way(module: str) -> Iterator[ModuleSpec]:
    """Return how the packages that a module is in and the module would be loaded."""
    spec: ModuleSpec | None = None
    path = ""
    for part in module.split("."):
        path = f"{path}.{part}" if path else part
        spec = spec_of(path, spec)
        if spec is None:
            return
        if spec.has_location:
            yield spec


def _names_in(content: bytes, spec: ModuleSpec) -> Iterator[str]:
    """Return all that a module may import: of `from a import b`, a.b may be a module too."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # whoever imports it is told
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # more dots than packages
                base = resolve_name("." * node.level + (node.module or ""), spec.parent)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
