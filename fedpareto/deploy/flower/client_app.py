"""The site's side: every message is answered by fedpareto's client, which checks it first."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedpareto.deploy.client import answer
from fedpareto.deploy.party import client_of
from fedpareto.errors import FedparetoError

from .site import load_site
from .task import message_of, records_of

app = ClientApp()


def answered(message: Message, context: Context) -> Message:
    """Return the site's answer; a refusal says why.

    The site goes by its own configuration: which deployment it agreed to, which client it is, and
    where it keeps its state and its ledger.
    """
    config = context.node_config
    try:
        client = client_of(config, Path(__file__).parent, lambda: load_site(config))
        told = answer(client, message_of(message))
    except FedparetoError as error:
        told = {"refused": str(error)}
    return Message(records_of(told), reply_to=message)


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
