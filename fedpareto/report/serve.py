"""A small read-only server that shows a study's page while the study runs.

It serves this machine alone unless asked otherwise, and answers GET and HEAD of two paths, the page
and its data. A request under a foreign host name is refused: a browser may have been tricked into
it (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import ipaddress
import re
import socket
import socketserver
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from fedpareto.baselines import remembering
from fedpareto.errors import FedparetoError, SettingError
from fedpareto.problem import is_private
from fedpareto.report.page import as_json, page, page_data
from fedpareto.report.paper import Html, paragraph, sheet
from fedpareto.report.points import View, view_of
from fedpareto.store import Store
from fedpareto.study import load_to_look
from fedpareto.words import visible

DATA = "data.json"
LOCAL = ("localhost", "127.0.0.1", "::1")
MOST_OPEN = 32  # connections at once; one more ends the oldest
LONGEST = 20.0  # seconds of a connection, from its first byte to its last
REST = 1.0  # seconds at most between two builds of the page


class Live:
    """The page of a study and its data, built again only when there are new rows."""

    def __init__(self, study_file: Path, db: Path) -> None:
        self._study_file = study_file
        self._db = db
        self._lock = threading.Lock()
        self._state: Any = None
        self._seen: View | None = None
        self._waiting = ""
        self._made: dict[str, bytes] = {}
        self._next = 0.0

    def get(self, what: str) -> bytes | None:
        """Return the page ("html") or its data ("json"); data is None while there are no rows."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                self._look()
            if what not in self._made:
                self._made[what] = self._make(what)
            took = time.monotonic() - began
            # leave the study most of the machine
            self._next = max(self._next, began + took + min(REST, 4 * took))
            return self._made[what] or None

    def _look(self) -> None:
        """Open the database, and read its rows if they have changed."""
        try:
            with Store.read(self._db) as store:
                state = (_stat(self._study_file), store.name, store.finished(), store.identity)
                if state != self._state:
                    seen = self._view(store) if store.finished() else None
                    self._show(seen, "No trial is finished yet.")
                    self._state = state
        except FedparetoError as error:
            if str(error) != self._waiting or self._seen:
                self._show(None, str(error))
            self._state = None

    def _view(self, store: Store) -> View:
        study = load_to_look(self._study_file, store.identity, store.seed)
        store.check(study.identity)
        if is_private(study.problem):
            store.check_noise()
        return view_of(replace(study, problem=remembering(study, store)), store)

    def _show(self, seen: View | None, waiting: str) -> None:
        self._seen = seen
        self._waiting = waiting
        self._made = {}

    def _make(self, what: str) -> bytes:
        """Return the bytes of the page or of its data; no data while there are no rows."""
        if what == "html":
            if self._seen is None:
                return waiting_page(self._study_file.stem, self._waiting).encode()
            return page(self._seen, live=DATA).encode()
        if self._seen is None:
            return b""
        return as_json(page_data(self._seen)).encode()


def _stat(path: Path) -> tuple[int, int] | None:
    """Return when a file was changed and its size, or None if there is none."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return None


def waiting_page(name: str, why: str) -> str:
    """Return a page that says what it waits for, and reloads by itself."""
    text = paragraph("Waiting for the study's rows. This page looks again every second.")
    text = Html(text + paragraph(why, "note"))
    return sheet(name, text, '<meta http-equiv="refresh" content="1">')


class Answer(BaseHTTPRequestHandler):
    """Answers one request with the page, its data, or the reason why not."""

    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for a request to arrive
    server: Server

    def do_GET(self) -> None:
        """Answer a GET: the page under /, its data under /data.json."""
        wrong = self.server.refuses(self.headers.get_all("Host") or [])
        path, _, _ = self.path.partition("?")
        if wrong:
            self._send(403, "text/plain", wrong.encode())
        elif path == "/":
            self._give_page()
        elif path == f"/{DATA}":
            self._give_data()
        else:
            nothing = b"There is nothing here but the page, /, and its data, /data.json.\n"
            self._send(404, "text/plain", nothing)

    def do_HEAD(self) -> None:
        """Answer a HEAD: like a GET, without its body."""
        self.do_GET()

    def __getattr__(self, name: str) -> Any:
        """Answer every other verb, known or not."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        only = b"This page can be read and nothing else: GET or HEAD.\n"
        self._send(405, "text/plain", only, Allow="GET, HEAD")

    def _give_page(self) -> None:
        """Send the page, with the policy that it states for its own script."""
        body = self.server.live.get("html") or b""
        policy = re.search(rb'http-equiv="Content-Security-Policy" content="([^"]*)"', body)
        if policy is None:
            self._give(body, "text/html")
            return
        allowed = f"{policy[1].decode()}; frame-ancestors 'none'"
        self._give(body, "text/html", **{"Content-Security-Policy": allowed})

    def _give_data(self) -> None:
        """Send the page's data, or ask to try again while there is none."""
        body = self.server.live.get("json")
        if body is None:
            self._send(503, "application/json", b'{"waiting": true}\n', **{"Retry-After": "1"})
        else:
            self._give(body, "application/json")

    def _give(self, body: bytes, kind: str, **more: str) -> None:
        """Send a body, unless the browser has the same one already."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        known = self.headers.get("If-None-Match", "").split(",")
        if tag in [one.strip().removeprefix("W/") for one in known]:
            self._send(304, kind, b"", ETag=tag, **more)
        else:
            self._send(200, kind, body, ETag=tag, **more)

    def _send(self, status: int, kind: str, body: bytes, **more: str) -> None:
        """Send an answer with the headers that every answer has."""
        self.send_response(status)
        head = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **HEADERS,
            **more,
        }
        if status == 304:
            del head["Content-Type"], head["Content-Length"]
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request in the same plain way, without repeating any of it."""
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = self.protocol_version
        self._send(code, "text/plain", f"{self.responses[code][0]}\n".encode())

    def version_string(self) -> str:
        return "fedpareto"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a page asks every second."""


HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(socketserver.ThreadingTCPServer):
    """A study's page on a port of this machine."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, live: Live, host: str, port: int) -> None:
        self.live = live
        self.host = host
        self._open: dict[socket.socket, float] = {}  # since when, the oldest first
        self._guard = threading.Lock()
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self.address_family, _, _, _, place = found[0]
            super().__init__((str(place[0]), port), Answer)
        except (socket.gaierror, UnicodeError) as error:  # no such name, or no name at all
            why = "no such name can be" if isinstance(error, UnicodeError) else error.strerror
            raise SettingError(
                f"--host: must be a name or address of this machine, found {host!r}: {why}."
            ) from error
        except OSError as error:
            raise _explained(error, host, port) from error

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """Return the address that the server listens on."""
        return ipaddress.ip_address(str(self.server_address[0]))

    @property
    def url(self) -> str:
        """Return the page's address as seen from this machine."""
        name = self.host
        if self.address.is_unspecified:
            name = "::1" if self.address.version == 6 else "127.0.0.1"
        if ":" in name:
            name = f"[{name}]"
        return f"http://{name}:{self.server_address[1]}/"

    @property
    def warning(self) -> str | None:
        """Return a warning if other machines can read the page, else None."""
        if self.address.is_loopback:
            return None
        return (
            f"warning: whoever can reach this machine on port {self.server_address[1]} can read "
            "this study; nothing is encrypted and no password is asked."
        )

    def refuses(self, hosts: list[str]) -> str | None:
        """Return why a request with these Host headers is not answered, or None if it is."""
        name = _host_name(hosts)
        if name in (*LOCAL, self.host.lower()):
            return None
        # a foreign page can point a name of its own here, but not an address
        own = _is_address(name) or name == socket.gethostname().lower()
        if self.address.is_unspecified and own:
            return None
        return (
            "This page answers to localhost and to the name or address given with --host, and to "
            "no other.\n"
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; of too many connections, end the oldest."""
        with self._guard:
            self._open[request] = time.monotonic()
            if len(self._open) > MOST_OPEN:
                _end(next(iter(self._open)))
                del self._open[next(iter(self._open))]
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that was answered."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long, however busy they look."""
        with self._guard:
            late = [s for s, since in self._open.items() if time.monotonic() - since > LONGEST]
            for request in late:
                _end(request)
                del self._open[request]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless the other side merely went away."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(
                visible(f"error: the page could not be given: {type(error).__name__}: {error}"),
                file=sys.stderr,
            )


def _end(request: socket.socket) -> None:
    """Break off a connection; the thread that answers it finds it closed."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _host_name(hosts: list[str]) -> str:
    """Return the name or address in a single Host header, without its port; "" if there is none."""
    if len(hosts) != 1:
        return ""
    named = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z.-]+))(?::\d+)?", hosts[0])
    if named is None:
        return ""
    return str(named[1] or named[2]).lower()


def _is_address(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _explained(error: OSError, host: str, port: int) -> SettingError:
    """Return an error that says why the server cannot listen there, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return SettingError(
            f"--port: must be free, found port {port} of {host} in use. Name another, or 0 for any "
            "that is free."
        )
    if error.errno == errno.EACCES:
        return SettingError(
            f"--port: must be one that you may use, found {port}. Name one from 1024 on, or 0 for "
            "any that is free."
        )
    return SettingError(
        f"--host: must be an address of this machine, found {host!r}: {error.strerror}."
    )
