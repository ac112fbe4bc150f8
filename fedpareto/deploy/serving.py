"""Run a deployment from the server's side, with encrypted sums or without."""

from __future__ import annotations

from collections.abc import Callable

from fedpareto.deploy.card import write_card
from fedpareto.deploy.encrypted_server import serve_encrypted
from fedpareto.deploy.parts import encryption_of
from fedpareto.deploy.progress import Progress
from fedpareto.deploy.server import Server, Sites, serve_plain


def serve(server: Server, sites: Sites, say: Callable[[Progress], None] | None = None) -> Progress:
    """Run a deployment to its end, from wherever it stands; return what it came to.

    The model card, with what was really spent, is written before it is said to be done.
    """
    plain = encryption_of(server.agreed) is None
    found = (serve_plain if plain else serve_encrypted)(server, sites, say)
    write_card(server.agreed, server.folder, found)
    return found.finished(server.folder)
