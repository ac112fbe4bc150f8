"""Run a deployment from the server's side, with encrypted sums or without."""

from __future__ import annotations

from collections.abc import Callable

from fedpareto.deploy.encrypted_server import serve_encrypted
from fedpareto.deploy.parts import encryption_of
from fedpareto.deploy.progress import Progress
from fedpareto.deploy.server import Server, Sites, serve_plain


def serve(server: Server, sites: Sites, say: Callable[[Progress], None] | None = None) -> Progress:
    """Run a deployment to its end, from wherever it stands; return what it came to."""
    if encryption_of(server.agreed) is None:
        return serve_plain(server, sites, say)
    return serve_encrypted(server, sites, say)
