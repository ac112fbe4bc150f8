"""The model as it ended, written as safetensors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedpareto import __version__
from fedpareto.deploy.deployment import Deployment
from fedpareto.federation.block import Block
from fedpareto.federation.keeping import kept_model
from fedpareto.federation.state import State
from fedpareto.files import starts_as, write_whole

FILE = "model.safetensors"


def write_model(agreed: Deployment, block: Block, state: State, folder: Path) -> None:
    """Write a deployment's model into a party's folder."""
    from safetensors.torch import save

    setup = replace(block.setup, secret=None)
    module = kept_model(setup, agreed.problem.widest, state)
    tensors = {name: t.contiguous() for name, t in module.state_dict().items()}
    about = {"format": "pt", "fedpareto": __version__, "deployment": agreed.hash}
    write_whole(folder / FILE, save(tensors, about), starts_as("model"))
