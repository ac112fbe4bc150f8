"""The words of the evidence: what an onlooker sees, and what nobody should take as guaranteed."""

from __future__ import annotations

import json

from fedpareto.privacy import Privacy
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
BY_STEPS = (  # where local steps hide records
    "Clients trust nobody but themselves: at every local step a client clips the gradient of each "
    "record and adds noise, and only that is counted. So the promise is the same towards a server "
    "that sees every upload, one that sees sums alone, and whoever sees the models."
)
NEIGHBOUR = {
    "zero_out": "the client's update were left out",
    "replace": "any other stood in its place",
}
RECORD = {  # where local steps hide it
    "zero_out": "the record were left out of every local step",
    "replace": "any other record stood in its place",
}
RECORDS = {  # and where it hides those of one person
    "zero_out": "they were left out of every local step",
    "replace": "any others stood in their place",
}
LEVEL = {
    "record": "Record level: it covers one record. Someone with many records is covered less, and "
    "that a client took part is not hidden.",
    "person": "Record level: it covers so many records of one person at one client. Someone with "
    "more, or with records at other clients too, is covered less, and that a client took part is "
    "not hidden.",
    "client": "Client level: it covers one client's data as a whole. Clients that belong to one "
    "person or group are covered less.",
}


def covered(terms: Privacy) -> str:
    """Return what one promise covers: a client, a record, or a person with several records."""
    return "person" if terms.records_per_person > 1 else terms.unit


def threat(terms: Privacy, by_steps: bool) -> tuple[str, str]:
    """Return who looks on, and what is to be hidden; by_steps where local steps hide records."""
    return _looks_on(terms, by_steps), f"To be hidden is {_hidden(terms, by_steps)}."


def _looks_on(terms: Privacy, by_steps: bool) -> str:
    if by_steps:
        return BY_STEPS
    counted = ""
    if terms.dropouts + terms.colluders:
        counted = (
            f" It counts on {terms.dropouts} dropouts and {terms.colluders} colluders a round."
        )
    return LOOKS_ON[terms.view] + counted


def _hidden(terms: Privacy, by_steps: bool) -> str:
    """Return what is to be hidden, and from which neighbour it should not differ."""
    what, neighbour = "everything that one client holds", NEIGHBOUR[terms.adjacency]
    if terms.unit == "record":
        what, neighbour = "one record of one client", NEIGHBOUR["replace"]
    if by_steps:
        neighbour = RECORD[terms.adjacency]
    if covered(terms) == "person":
        what = f"up to {terms.records_per_person} records of one person at one client"
        neighbour = RECORDS[terms.adjacency]
    return f"{what}: what an onlooker sees should be nearly as likely if {neighbour}"


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
        lines.append("The search, if what it trained on was private: see above.")
    if promised:
        lines += _of_the_promise(promised.unit if terms is None else covered(terms))
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
    """Return what a promise for a client, a record or a person does not cover."""
    return [
        "The simulation's own noise: it comes from a seed, so that the study can be repeated, and "
        "whoever knows the seed can take it off. Deployed noise must come from the system's secure "
        "randomness, fresh for every client and round, and must not be kept; floating-point "
        "sampling can itself leak, so use an implementation made for it.",
        "Anything but this training: more rounds, another training on the same data, or a larger "
        "cohort costs more than is stated.",
        LEVEL[unit],
    ]
