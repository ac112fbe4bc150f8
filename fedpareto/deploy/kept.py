"""What a party keeps on disk between two messages: tensors and a few words, in one file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fedpareto import __version__
from fedpareto.errors import DeploymentError
from fedpareto.files import starts_as, write_whole


@dataclass(frozen=True)
class Kept:
    """Tensors by name, and words about them."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)


def write(path: Path, kept: Kept) -> None:
    """Write a file in one step: a reader finds the old state or the new one."""
    from safetensors.torch import save

    tensors = {name: t.contiguous().cpu() for name, t in kept.tensors.items()}
    said = json.dumps(dict(kept.words))
    words = {"words": said, "sha256": _hash(said, tensors), "fedpareto": __version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(tensors, words), starts_as("model"))


def read(path: Path, names: Iterable[str]) -> Kept | None:
    """Return what was kept, with words of these names; None where nothing is."""
    from safetensors import SafetensorError, safe_open

    if not path.exists() and not path.is_symlink():
        return None
    try:
        if not path.is_file():
            raise ValueError("something that is no file")
        with safe_open(path, "pt") as file:
            told = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if told["sha256"] != _hash(told["words"], tensors):
            raise ValueError("other values than were written")
        words = json.loads(told["words"])
        for name in names:
            words[name]  # else it is another party's
        return Kept(tensors, words)
    except (SafetensorError, KeyError, ValueError, OSError, RecursionError) as error:
        raise DeploymentError(
            f"{path}: must hold the state that was written, found damage: {error}. Take a copy "
            "that was kept: without it, privacy would be spent twice."
        ) from None


def _hash(words: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of words and tensors, by which damage is noticed."""
    from safetensors.torch import save

    found = hashlib.sha256(words.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        found.update(save({name: tensors[name]}))
    return found.hexdigest()
