"""The server's side: fedpareto's server runs the rounds, Flower carries its messages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedpareto.deploy import messages
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.met import met
from fedpareto.deploy.server import Server
from fedpareto.deploy.serving import serve

from .task import agreed, message_of, records_of

POLL = 0.5  # seconds between two looks for answers
AGAIN = 60.0  # seconds after which a site is asked again: its node may have been killed meanwhile
TYPES = {"hello": "query", "judge": "evaluate"}  # all else trains
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the deployment to its end, from wherever its state in the folder stands."""
    deployment = agreed()
    folder = Path(str(context.run_config["folder"])).expanduser()
    named = str(context.run_config.get("public-key", ""))
    key = Path(named).expanduser() if named else None
    serve(Server(deployment, folder, key=key), FlowerSites(grid, deployment))


class FlowerSites:
    """The sites that have joined, by what they say of themselves."""

    def __init__(self, grid: Grid, deployment: Deployment) -> None:
        self.grid = grid
        self.deployment = deployment
        self.nodes: dict[int, int] = {}  # client → node

    def ask(
        self, requests: Mapping[int, messages.Message], patience: float
    ) -> Iterator[tuple[int, messages.Message]]:
        """Send each client its request, again where its node came back; yield their answers."""
        ends = time.monotonic() + patience
        waiting: dict[str, int] = {}  # message → client
        sent: dict[int, float] = {}  # client → when it was asked last
        missing = set(requests)
        while missing and time.monotonic() < ends:
            self._meet(ends)
            now = time.monotonic()
            asked = {k for k in waiting.values() if now < sent[k] + AGAIN}
            lost = (missing - asked) & set(self.nodes)
            waiting |= self._send({k: requests[k] for k in lost}, ends)
            sent |= dict.fromkeys(lost, now)
            for client, answer in self._answers(waiting):
                if client in missing:  # asked twice, it sent the same bytes twice
                    missing.discard(client)
                    yield client, answer
            time.sleep(POLL)

    def _meet(self, ends: float) -> None:
        """Say hello to nodes that are new, and forget those that are gone."""
        there = set(self.grid.get_node_ids())
        self.nodes = {k: node for k, node in self.nodes.items() if node in there}
        new = there - set(self.nodes.values())
        if not new:
            return
        hello = messages.request(self.deployment, "hello")
        waiting = self._push([(node, hello) for node in new], ends)
        found: list[tuple[int, Mapping[str, Any]]] = []
        while waiting and time.monotonic() < ends and set(waiting.values()) <= there:
            found += self._answers(waiting)
            time.sleep(POLL)
            there = set(self.grid.get_node_ids())
        self.nodes |= met(self.deployment, found, self.nodes)

    def _send(self, requests: Mapping[int, messages.Message], ends: float) -> dict[str, int]:
        """Send requests; return the client of each message."""
        sent = self._push([(self.nodes[k], r) for k, r in requests.items()], ends)
        by_node = {node: k for k, node in self.nodes.items()}
        return {message: by_node[node] for message, node in sent.items()}

    def _push(self, requests: list[tuple[int, messages.Message]], ends: float) -> dict[str, int]:
        """Send requests to nodes; return the node of each message."""
        if not requests:
            return {}
        left = max(1.0, ends - time.monotonic())
        sent = [
            Message(records_of(r), node, TYPES.get(r["do"], "train"), ttl=left)
            for node, r in requests
        ]
        ids = self.grid.push_messages(sent)
        return dict(zip(ids, (node for node, _ in requests), strict=True))

    def _answers(self, waiting: dict[str, int]) -> list[tuple[int, messages.Message]]:
        """Return what was answered to messages that are waited for; they are waited for no more.

        Where a node is gone or its app failed, there is no answer, and it is asked again.
        """
        found: list[tuple[int, messages.Message]] = []
        if not waiting:
            return found
        for reply in self.grid.pull_messages(list(waiting)):
            whose = waiting.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                found.append((whose, message_of(reply)))
        return found
