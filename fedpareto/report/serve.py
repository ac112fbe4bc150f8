"""The page while a study runs: a small read-only server, for this machine alone unless asked otherwise.

It answers GET and HEAD of two paths, the page and its data. A browser that was tricked into asking under a foreign name (DNS rebinding)
is refused by that name, so what a study shows stays with whoever may look at it.
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
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from fedpareto.errors import FedparetoError, SettingError
from fedpareto.report.page import as_json, page, page_data
from fedpareto.report.paper import paragraph, sheet
from fedpareto.report.points import View, view
from fedpareto.store import Store
from fedpareto.study import load_study

DATA = "data.json"
LOCAL = ("localhost", "127.0.0.1", "::1")
REST = 1.0  # seconds that building the page may make its readers wait for the next one, at the most


class Live:
    """What a study shows now: the page and its data, made anew only where rows have landed."""

    def __init__(self, study_file: Path, db: Path) -> None:
        self._study_file, self._db = study_file, db
        self._lock = threading.Lock()
        self._state: Any = None
        self._seen: View | None = None
        self._waiting = ""
        self._made: dict[str, bytes] = {}
        self._next = 0.0

    def get(self, what: str) -> bytes | None:
        """Return the page ("html") or its data ("json"); None for the data of a study that has no rows yet."""
        with self._lock:
            began = time.monotonic()
            if began >= self._next:
                self._look()
            if what not in self._made:
                self._made[what] = self._make(what)
            took = time.monotonic() - began
            self._next = max(
                self._next, began + took + min(REST, 4 * took)
            )  # leave the study most of the machine
            return self._made[what] or None

    def _look(self) -> None:
        """Open the database, and look at its rows if they are others than before."""
        try:
            with Store.read(self._db) as store:
                state = (_stat(self._study_file), store.name, store.finished(), store.identity)
                if state != self._state:
                    self._show(
                        self._view(store) if store.finished() else None, "No trial is finished yet."
                    )
                    self._state = state
        except FedparetoError as error:
            if str(error) != self._waiting or self._seen:
                self._show(None, str(error))
            self._state = None

    def _view(self, store: Store) -> View:
        study = load_study(self._study_file, seed=store.identity["seed"])
        store.check(study.identity)
        return view(study, store.trials())

    def _show(self, seen: View | None, waiting: str) -> None:
        self._seen, self._waiting, self._made = seen, waiting, {}

    def _make(self, what: str) -> bytes:
        if self._seen is None:
            return (
                waiting_page(self._study_file.stem, self._waiting).encode()
                if what == "html"
                else b""
            )
        if what == "html":
            return page(self._seen, live=DATA).encode()
        return as_json(page_data(self._seen)).encode()


def _stat(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return None


def waiting_page(name: str, why: str) -> str:
    """Return a page that says what it waits for, and looks again by itself."""
    text = paragraph(
        "Waiting for the study's rows. This page looks again every second."
    ) + paragraph(why, "note")
    return sheet(name, text, '<meta http-equiv="refresh" content="1">')


class Answer(BaseHTTPRequestHandler):
    """One request: the page, its data, or why not."""

    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for a request to arrive
    server: Server

    def do_GET(self) -> None:
        wrong = self.server.refuses(self.headers.get_all("Host") or [])
        what = {"/": "html", f"/{DATA}": "json"}.get(self.path.partition("?")[0])
        if wrong:
            self._send(403, "text/plain", wrong.encode())
        elif what is None:
            self._send(
                404,
                "text/plain",
                b"There is nothing here but the page, /, and its data, /data.json.\n",
            )
        else:
            self._give(what, self.server.live.get(what))

    def do_HEAD(self) -> None:
        self.do_GET()

    def __getattr__(self, name: str) -> Any:
        """Answer every other verb, known or not."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        self._send(
            405,
            "text/plain",
            b"This page can be read and nothing else: GET or HEAD.\n",
            Allow="GET, HEAD",
        )

    def _give(self, what: str, body: bytes | None) -> None:
        if body is None:
            self._send(503, "application/json", b'{"waiting": true}\n', **{"Retry-After": "1"})
            return
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        same = tag in [
            t.strip().removeprefix("W/") for t in self.headers.get("If-None-Match", "").split(",")
        ]
        kind = "text/html" if what == "html" else "application/json"
        own = (
            re.search(rb'http-equiv="Content-Security-Policy" content="([^"]*)"', body)
            if what == "html"
            else None
        )
        allowed = (
            {"Content-Security-Policy": f"{own[1].decode()}; frame-ancestors 'none'"} if own else {}
        )  # the page names its one script
        self._send(304 if same else 200, kind, b"" if same else body, ETag=tag, **allowed)

    def _send(self, status: int, kind: str, body: bytes, **more: str) -> None:
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
        """Answer what is not a request at all in the same plain way, and repeat nothing of it."""
        self.command, self.request_version = (
            getattr(self, "command", None) or "GET",
            self.protocol_version,
        )
        self._send(code, "text/plain", f"{self.responses[code][0]}\n".encode())

    def version_string(self) -> str:
        return "fedpareto"

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: a page asks every second."""


HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
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
        self.live, self.host = live, host
        try:
            self.address_family, _, _, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )[0]
            super().__init__((str(place[0]), port), Answer)
        except socket.gaierror as error:
            raise SettingError(
                f"--host: must be a name or address of this machine, found {host!r}: {error.strerror}."
            ) from error
        except OSError as error:
            raise _explained(error, host, port) from error

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        return ipaddress.ip_address(str(self.server_address[0]))

    @property
    def url(self) -> str:
        """Return where to look from this machine."""
        local = "::1" if self.address.version == 6 else "127.0.0.1"
        name = local if self.address.is_unspecified else self.host
        return f"http://{f'[{name}]' if ':' in name else name}:{self.server_address[1]}/"

    @property
    def warning(self) -> str | None:
        """Return a warning where others than this machine can look on."""
        if self.address.is_loopback:
            return None
        return (
            f"warning: whoever can reach this machine on port {self.server_address[1]} can read this study; nothing is encrypted and "
            "no password is asked."
        )

    def refuses(self, hosts: list[str]) -> str | None:
        """Return why a request that was sent to these hosts is not answered, None where it is."""
        named = (
            re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z.-]+))(?::\d+)?", hosts[0])
            if len(hosts) == 1
            else None
        )
        name = (named[1] or named[2]).lower() if named else ""
        if name in (*LOCAL, self.host.lower()):
            return None
        if self.address.is_unspecified and (
            _is_address(name) or name == socket.gethostname().lower()
        ):
            return None  # a foreign page can point a name of its own here, but not an address
        return "This page answers to localhost and to the name or address given with --host, and to no other.\n"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless the other side merely went away."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(
                f"error: the page could not be given: {type(error).__name__}: {error}",
                file=sys.stderr,
            )


def _is_address(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(text))
    return False


def _explained(error: OSError, host: str, port: int) -> SettingError:
    if error.errno == errno.EADDRINUSE:
        return SettingError(
            f"--port: must be free, found port {port} of {host} in use. Name another, or 0 for any that is free."
        )
    if error.errno == errno.EACCES:
        return SettingError(
            f"--port: must be one that you may use, found {port}. Name one from 1024 on, or 0 for any that is free."
        )
    return SettingError(
        f"--host: must be an address of this machine, found {host!r}: {error.strerror}."
    )
