"""Which site stands behind which address, as they say themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedpareto import __version__
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.messages import same_terms, whole
from fedpareto.errors import DeploymentError, shown


def met(
    agreed: Deployment,
    answers: Sequence[tuple[int, Mapping[str, Any]]],
    known: Mapping[int, int],
) -> dict[int, int]:
    """Return the address of each client that said hello; refuse one that goes by other terms.

    known is where other clients are: two sites cannot be one client.
    """
    found: dict[int, int] = {}
    for address, answer in answers:
        if "refused" in answer:
            raise DeploymentError(
                f"site {shown(answer.get('client'))}: must take part, found that it refused: "
                f"{shown(answer['refused'])}"
            )
        client = whole(answer, "client", 0, agreed.clients - 1)
        same_terms(agreed, answer, f"site {client}")
        if answer.get("version") != __version__:
            raise DeploymentError(
                f"site {client}: must run fedpareto {__version__}, found "
                f"{shown(answer.get('version'))}. Install the same version at all parties."
            )
        if client in found or client in known:
            raise DeploymentError(
                f"site {client}: must be one node, found two that say they are it. Start each "
                "SuperNode with a client number of its own."
            )
        found[client] = address
    return found
