"""What a party keeps on disk between two messages: tensors and a few words, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    words = {"words": json.dumps(dict(kept.words)), "fedpareto": __version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(tensors, words), starts_as("model"))


def read(path: Path) -> Kept | None:
    """Return what was kept; None where nothing is."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            words = json.loads((file.metadata() or {})["words"])
            return Kept({name: file.get_tensor(name) for name in file.keys()}, words)  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise DeploymentError(
            f"{path}: must hold the state that was written, found damage: {error}. Take a copy "
            "that was kept: without it, privacy would be spent twice."
        ) from None
