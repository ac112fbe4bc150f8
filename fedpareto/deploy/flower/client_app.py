"""The site's side: every message is answered by fedpareto's client, which checks it first."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedpareto.deploy.client import answer
from fedpareto.deploy.party import Client

from .site import load_site
from .task import agreed, message_of, records_of

app = ClientApp()


def answered(message: Message, context: Context) -> Message:
    """Return the site's answer. It keeps its state and its ledger in the folder it was given."""
    config = context.node_config
    client = Client(
        agreed(),
        int(config["client"]),
        Path(str(config["folder"])).expanduser(),
        lambda: load_site(config),
        key=Path(str(config["key"])).expanduser() if "key" in config else None,
    )
    return Message(records_of(answer(client, message_of(message))), reply_to=message)


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Say which site this is."""
    return answered(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train, protect, and send."""
    return answered(message, context)


@app.evaluate()
def judge(message: Message, context: Context) -> Message:
    """Count how many test records the model gets wrong, where that was agreed."""
    return answered(message, context)
