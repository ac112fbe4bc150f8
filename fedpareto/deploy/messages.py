"""What parties send one another: flat tables of numbers, texts and bytes, whatever carries them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.deploy.deployment import Deployment
from fedpareto.errors import DeploymentError, shown

Message = dict[str, Any]  # name → int, float, str, bool or bytes


def packed(numbers: Tensor) -> bytes:
    """Return numbers as 32-bit floats, the lowest byte first."""
    return np.ascontiguousarray(numbers.detach().cpu().numpy().astype("<f4")).tobytes()


def unpacked(found: Any, size: int, what: str) -> Tensor:
    """Return so many finite numbers; refuse anything else."""
    if not isinstance(found, bytes) or len(found) != 4 * size:
        got = f"{len(found)} bytes" if isinstance(found, bytes) else shown(found)
        raise DeploymentError(
            f"{what}: must be {size} numbers of 32 bits, {4 * size} bytes, found {got}."
        )
    numbers = torch.from_numpy(np.frombuffer(found, dtype="<f4").astype(np.float32))
    if not bool(torch.isfinite(numbers).all()):
        raise DeploymentError(f"{what}: must be finite numbers, found nan or infinity among them.")
    return numbers


def request(agreed: Deployment, do: str, **rest: Any) -> Message:
    """Return a request to a site."""
    return {"do": do, "deployment": agreed.hash, "time": time.time(), **rest}


def same_terms(agreed: Deployment, message: Mapping[str, Any], whose: str) -> None:
    """Refuse a party that goes by another deployment, or by another clock."""
    if message.get("deployment") != agreed.hash:
        raise DeploymentError(
            f"deployment: must be the one agreed, {agreed.hash[:12]}…, found that {whose} goes by "
            f"{shown(message.get('deployment'))[:14]}…: other settings, another model or other "
            "code. Give all parties the same exported folder."
        )
    then = message.get("time")
    now = time.time()
    if not isinstance(then, int | float) or not abs(now - then) <= agreed.skew:
        found = f"{then - now:+.0f} seconds" if isinstance(then, int | float) else shown(then)
        raise DeploymentError(
            f"clock: must differ by at most {agreed.skew:g} seconds, found that the clock of "
            f"{whose} differs by {found}, or that the message is old. Set the clocks."
        )


def whole(message: Mapping[str, Any], name: str, least: int, most: int) -> int:
    """Return a whole number of a message within bounds."""
    found = message.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise DeploymentError(
            f"{name}: must be a whole number from {least} to {most}, found {shown(found)}."
        )
    return found


def digest(message: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a request asks, whenever it was sent."""
    found = hashlib.sha256()
    for name in sorted(set(message) - {"time", "judge"}):
        value = message[name]
        data = value if isinstance(value, bytes) else repr(value).encode()
        found.update(f"{name}:{len(data)}:".encode() + data)
    return found.hexdigest()
