"""The words of the evidence: what an onlooker sees, and what nobody should take as guaranteed."""

from __future__ import annotations

import json

from fedpareto.report.choose import Point
from fedpareto.report.points import View
from fedpareto.report.privacy import guarantee_of, terms_of
from fedpareto.report.text import proxies

LOOKS_ON = {
    "server": "Clients trust nobody but themselves. The server sees every upload of every round "
    "and may try to learn from it; otherwise it follows the protocol. Only the noise that a client "
    "adds before it sends protects that client.",
    "secagg": "The server sees the sum of a round's uploads and who took part, but no upload by "
    "itself: a secure aggregation protocol is taken to hide them. A client is protected by the "
    "noise of the whole cohort, so honest clients must add their share.",
    "release": "Onlookers see the models and nothing else. The server, which sees uploads and "
    "knows who took part in which round, is trusted to keep both secret.",
}
HIDDEN = {"client": "everything that one client holds", "record": "one record of one client"}
NEIGHBOUR = {
    "zero_out": "the client's update were left out",
    "replace": "any other stood in its place",
}
RECORD = {  # where local steps hide it
    "zero_out": "the record were left out of every local step",
    "replace": "any other record stood in its place",
}
LEVEL = {
    "record": "Record level: it covers one record. Someone with many records is covered less, and "
    "that a client took part is not hidden.",
    "client": "Client level: it covers one client's data as a whole. Clients that belong to one "
    "person or group are covered less.",
}


def not_guaranteed(seen: View, point: Point | None) -> list[str]:
    """Return what nobody should take as guaranteed, in sentences; only what applies."""
    promised = None if point is None else guarantee_of(seen, point)
    lines = []
    if not promised:
        lines.append(
            "Differential privacy: no (ε, δ) is promised for the choice, or none was made."
        )
    for proxy in proxies(seen.judges):
        lines.append(f"{proxy} Nothing follows from it about what an attacker can learn.")
    terms = terms_of(seen)
    if terms is not None and not terms.private_data:
        lines.append(
            "The search: what it trained on is taken to be public. If it was private, choosing by "
            "it cost privacy that is counted nowhere here."
        )
    if promised:
        lines += _of_the_promise(promised.unit)
    lines += [
        "Anything beside the messages that the threat model names: timing, the size and number of "
        "messages, who fails or joins when, logs, memory, error reports, and scores published on "
        "private test data.",
        "Clients or servers that break the protocol: poisoned updates, false weights, tampered "
        "models. Nothing here was tested against them, except colluders and dropouts as far as "
        "they are counted above.",
    ]
    if "batchcrypt" in json.dumps(seen.study.description.get("mechanism", {})):
        lines.append(
            "Encryption: it hides single uploads from the server, not what their sums and the "
            "model tell."
        )
    return [
        *lines,
        "Utility elsewhere: errors, times and sizes were measured in a simulation of this "
        "federation on this data and model; costs in seconds follow a cost model. Confirm the "
        "choice where it is to be used.",
        "Facts about many people: differential privacy bounds what is learnt from one of them "
        "being in the data, not what the data as a whole teaches about all.",
    ]


def _of_the_promise(unit: str) -> list[str]:
    """Return what a promise for a client or a record does not cover."""
    return [
        "The simulation's own noise: it comes from a seed, so that the study can be repeated, and "
        "whoever knows the seed can take it off. Deployed noise must come from the system's secure "
        "randomness, fresh for every client and round, and must not be kept; floating-point "
        "sampling can itself leak, so use an implementation made for it.",
        "Anything but this training: more rounds, another training on the same data, or a larger "
        "cohort costs more than is stated.",
        LEVEL[unit],
    ]
