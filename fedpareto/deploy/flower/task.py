"""What both sides of the app share: what was agreed, and messages as Flower carries them."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict

from fedpareto.deploy import messages
from fedpareto.deploy.deployment import Deployment, read

RECORD = "fedpareto"


def agreed() -> Deployment:
    """Return the deployment that lies beside this file; code that was changed is refused."""
    return read(Path(__file__).parent)


def records_of(message: messages.Message) -> RecordDict:
    """Return a message as the records that Flower carries."""
    return RecordDict({RECORD: ConfigRecord(message)})


def message_of(carried: Message) -> messages.Message:
    """Return the message in what Flower carried; an empty one where there is none."""
    found = carried.content.config_records.get(RECORD)
    return dict(found) if found is not None else {}
