"""A mechanism of one's own: send only the sign of each coordinate, times one common size.

Run a study with it: fedpareto run examples/own_mechanism.toml
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpareto.settings import Real, setting
from fedpareto.testing import check_mechanism


@dataclass(frozen=True)
class Signs:
    """Send one bit per coordinate."""

    step: Real = setting(help="size of every coordinate that is sent", above=0)

    def protect(self, upload, values, noise):
        signs = upload.values.sign() * values["step"][:, None, None]
        return replace(upload, values=signs, bits=upload.bits * 0 + 1)


if __name__ == "__main__":
    check_mechanism(Signs(0.01))
    print("Signs keeps the contract of a mechanism")
