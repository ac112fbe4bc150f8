"""The live page: what it shows as rows land, and what it refuses."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from fedpareto import load_study, run
from fedpareto.errors import SettingError
from fedpareto.report.serve import Live, Server
from fedpareto.store import Store


@contextlib.contextmanager
def serving(study, host="127.0.0.1", port=0):
    with Server(Live(study, study.with_suffix(".db")), host, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path="/", verb="GET", **headers):
    """Return status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    with contextlib.closing(connection):
        connection.putrequest(verb, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()


def raw(server, text):
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20) as line:
        line.sendall(text)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


@pytest.fixture
def served(finished_study):
    with serving(finished_study) as server:
        yield server


def shown(server):
    status, _, body = ask(server, "/data.json")
    return json.loads(body)["trials"] if status == 200 else None


def until(condition, seconds=3.0):
    """Wait as long as a reader would, asking as often as a page does and more."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not seen within {seconds} s"
        time.sleep(0.1)


def test_the_page_polls_its_data_and_both_are_served(served):
    status, headers, page = ask(served)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"data.json" in page
    status, headers, data = ask(served, "/data.json")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert (json.loads(data)["study"], json.loads(data)["trials"]) == ("tiny", 2)
    assert ask(served, "/data.json?then=1")[2] == data


def test_a_poll_that_finds_nothing_new_costs_nothing(served):
    _, headers, _ = ask(served, "/data.json")
    status, again, body = ask(served, "/data.json", If_None_Match=f'"other", W/{headers["ETag"]}')
    assert (status, body, again["ETag"]) == (304, b"", headers["ETag"])
    assert "Content-Length" not in again
    assert ask(served, "/data.json", If_None_Match='"other"')[0] == 200
    began = time.monotonic()
    for _ in range(20):
        ask(served, "/data.json", If_None_Match=headers["ETag"])
    assert time.monotonic() - began < 1.5


def test_head_gives_the_headers_alone(served):
    status, headers, body = ask(served, "/", "HEAD")
    assert (status, body, int(headers["Content-Length"]) > 1000) == (200, b"", True)


def test_new_rows_are_seen_within_three_seconds_and_the_study_restarts_beneath(tiny_study):
    with serving(tiny_study) as server:
        run(load_study(tiny_study)).close()
        until(lambda: shown(server) == 2)
        writer = threading.Thread(target=lambda: run(load_study(tiny_study, budget=8)).close())
        writer.start()
        until(lambda: shown(server) == 8)
        writer.join()
        tag = ask(server, "/data.json")[1]["ETag"]
        tiny_study.with_suffix(".db").unlink()
        until(lambda: shown(server) is None)
        run(load_study(tiny_study, budget=8, seed=9)).close()
        until(lambda: shown(server) == 8)
        assert ask(server, "/data.json")[1]["ETag"] != tag


def test_another_seed_in_the_same_place_is_another_study_even_if_nobody_looked_meanwhile(tiny_study):
    run(load_study(tiny_study)).close()
    with serving(tiny_study) as server:
        tag = ask(server, "/data.json")[1]["ETag"]
        tiny_study.with_suffix(".db").unlink()
        run(load_study(tiny_study, seed=9)).close()
        until(lambda: ask(server, "/data.json")[1].get("ETag") not in (tag, None))


def test_rows_are_read_while_a_run_holds_the_database(tiny_study):
    study = load_study(tiny_study, budget=4)
    with serving(tiny_study) as server, run(load_study(tiny_study)) as store:
        until(lambda: shown(server) == 2)
        assert store.finished() == 2
    with serving(tiny_study) as server, run(study):
        until(lambda: shown(server) == 4)


def test_before_the_first_row_the_page_waits_and_looks_again(tiny_study):
    with serving(tiny_study) as server:
        status, _, page = ask(server)
        assert (status, b'http-equiv="refresh"' in page, b"no such file" in page) == (200, True, True)
        status, headers, body = ask(server, "/data.json")
        assert (status, headers["Retry-After"], json.loads(body)) == (503, "1", {"waiting": True})
        study = load_study(tiny_study)
        with Store.write(tiny_study.with_suffix(".db"), study.name, study.identity, 1):
            until(lambda: b"No trial is finished yet." in ask(server)[2])


def test_a_study_file_that_changed_or_broke_is_said_on_the_page(served, finished_study):
    text = finished_study.read_text()
    finished_study.write_text(text.replace("rounds = 1", "rounds = 2"))
    until(lambda: b"training.rounds (1 there, 2 here)" in ask(served)[2])
    finished_study.write_text("<script>alert(1)</script>")
    until(lambda: b"must be TOML" in ask(served)[2])
    assert b"<script>alert" not in ask(served)[2]
    finished_study.write_text(text)
    until(lambda: shown(served) == 2)


def test_a_server_can_be_started_again_on_the_same_port(finished_study):
    with serving(finished_study) as first:
        port = first.server_address[1]
        assert shown(first) == 2
    with serving(finished_study, port=port) as second:
        assert shown(second) == 2


@pytest.mark.parametrize("path", ["/tiny.toml", "/tiny.db", "/../tiny.toml", "/..%2ftiny.toml", "/%2e%2e/tiny.db", "//etc/passwd",
                                  "/data.json/", "/./data.json", "data.json", "/data.json/../tiny.toml", "\\tiny.toml", "/favicon.ico", "*",
                                  "http://127.0.0.1/data.json", "/data.json%00", "/;/../etc/passwd"])
def test_nothing_but_the_page_and_its_data_exists(served, path):
    status, _, body = ask(served, path)
    assert (status, body.startswith(b"There is nothing here")) == (404, True)


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "BREW"])
def test_every_verb_that_could_write_is_refused(served, finished_study, verb):
    before = finished_study.with_suffix(".db").read_bytes()
    status, headers, _ = ask(served, "/data.json", verb)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert finished_study.with_suffix(".db").read_bytes() == before


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:80"])
def test_this_machines_own_names_are_answered(served, host):
    assert ask(served, Host=host)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil@localhost", "127.0.0.1.evil.example:8000", "",
                                  "192.168.0.7", "localhost, evil", "[::1].evil", "127.1"])
def test_a_name_that_a_foreign_page_could_point_here_is_refused(served, host):
    status, _, body = ask(served, "/data.json", Host=host)
    assert (status, b"answers to localhost" in body) == (403, True)


def test_requests_without_a_host_or_with_two_are_refused(served):
    for text in (b"GET /data.json HTTP/1.0\r\n\r\n", b"GET /data.json HTTP/1.1\r\n\r\n",
                 b"GET /data.json HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"):
        assert raw(served, text).startswith(b"HTTP/1.1 403 ")


def test_what_is_no_request_is_answered_plainly(served):
    wrong = raw(served, b"GET /<script>alert(1)</script> HTTP/<b>\r\nHost: localhost\r\n\r\n")
    assert wrong.startswith(b"HTTP/1.1 400 ")
    assert b"X-Content-Type-Options: nosniff" in wrong
    assert b"<" not in wrong
    assert raw(served, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 414 ")
    assert raw(served, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n").startswith(b"HTTP/1.1 431 ")
    asked = b"GET /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    smuggled = raw(served, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n" + asked)
    assert smuggled.count(b"HTTP/1.1 ") == 1
    assert shown(served) == 2


@pytest.mark.parametrize("path", ["/", "/data.json", "/nothing"])
def test_every_answer_carries_the_same_protection(served, path):
    headers = ask(served, path, Origin="https://evil.example")[1]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["Server"] == "fedpareto"
    assert not [name for name in headers if name.lower().startswith("access-control")]
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert rule in headers["Content-Security-Policy"]
    assert "script-src 'unsafe" not in headers["Content-Security-Policy"]


def test_the_policy_lets_the_pages_own_script_run_and_no_other(served):
    _, headers, page = ask(served)
    scripts = re.findall(r"<script>(.*?)</script>", page.decode(), re.S)
    hashes = re.findall(r"'sha256-([^']+)'", headers["Content-Security-Policy"])
    assert hashes == [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert "connect-src 'self'" in headers["Content-Security-Policy"]


def test_a_study_name_with_markup_is_shown_and_not_run(tiny_study):
    tiny_study.write_text(tiny_study.read_text().replace('name = "tiny"', 'name = "<img src=x onerror=alert(1)>"'))
    run(load_study(tiny_study)).close()
    with serving(tiny_study) as server:
        assert b"<img" not in ask(server)[2]


def test_listening_wider_is_warned_of_and_answers_addresses_but_no_foreign_name(finished_study):
    with serving(finished_study, "0.0.0.0") as server:
        assert "whoever can reach this machine" in server.warning
        assert server.url.startswith("http://127.0.0.1:")
        for host in ("192.168.0.7:8000", socket.gethostname(), "localhost"):
            assert ask(server, Host=host)[0] == 200
        assert ask(server, Host="evil.example")[0] == 403
    with serving(finished_study) as server:
        assert server.warning is None


def test_a_port_in_use_and_a_host_of_elsewhere_say_what_to_do(served, finished_study, fedpareto):
    port = served.server_address[1]
    said = f"error: --port: must be free, found port {port} of 127.0.0.1 in use. Name another, or 0 for any that is free.\n"
    assert fedpareto("report", finished_study, "--serve", "--port", port) == (2, "", said)
    live = Live(finished_study, finished_study.with_suffix(".db"))
    with pytest.raises(SettingError, match=r"--host: must be an address of this machine, found '192.0.2.1'"):
        Server(live, "192.0.2.1", 0)
    with pytest.raises(SettingError, match=r"--host: must be a name or address of this machine, found 'nowhere.invalid'"):
        Server(live, "nowhere.invalid", 0)


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "\udcff"])
def test_a_host_that_cannot_be_a_name_is_refused_in_words(finished_study, fedpareto, host):
    """A past finding: the codec of names raised its own error."""
    refused = fedpareto("report", finished_study, "--serve", "--host", host)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith("error: --host: must be a name or address of this machine, found ")
    assert refused.err.endswith(": no such name can be.\n")


def test_report_refuses_what_does_not_go_with_serving(finished_study, fedpareto, tmp_path):
    assert "--serve must stand without" in fedpareto("report", finished_study, "--serve", "--evidence").err
    assert "--serve must stand without" in fedpareto("report", finished_study, "--serve", "--output", tmp_path / "x.html").err
    assert "must go with --evidence" in fedpareto("report", finished_study, "--limit", "leakage=1").err
    assert "65536" in fedpareto("report", finished_study, "--serve", "--port", 65536).err
    assert "must exist" in fedpareto("report", tmp_path / "nothing.toml", "--serve").err


def test_a_browser_waits_for_the_first_row_and_sees_new_ones_within_three_seconds(tiny_study):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no browser: install Debian's chromium")
    faults = []
    with serving(tiny_study) as server, sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-quic"])
        tab = browser.new_page()
        tab.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.goto(server.url)
        assert "Waiting for the study's rows" in tab.inner_text("body")
        for budget in (2, 8):
            run(load_study(tiny_study, budget=budget)).close()
            tab.locator("#summary", has_text=f"{budget} trials").wait_for(timeout=3000)
        browser.close()
    assert faults == []


def test_the_command_says_where_and_ctrl_c_ends_it_quietly(finished_study):
    listens = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # a background job of a shell does not
    command = [sys.executable, "-c", listens + "runpy.run_module('fedpareto', run_name='__main__')"]
    command += ["report", str(finished_study), "--serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        place = re.fullmatch(r"page http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n", line)
        connection = http.client.HTTPConnection("127.0.0.1", int(place[1]), timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/data.json")
            assert connection.getresponse().status == 200
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", "")


def closed(line):
    """Say whether the other side has ended a connection."""
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_slow_connections_are_ended_and_keep_nobody_out(finished_study, monkeypatch):
    monkeypatch.setattr("fedpareto.report.serve.LONGEST", 1.0)
    monkeypatch.setattr("fedpareto.report.serve.MOST_OPEN", 8)
    with serving(finished_study) as server, contextlib.ExitStack() as lines:
        slow = [lines.enter_context(socket.create_connection(("127.0.0.1", server.server_address[1]))) for _ in range(30)]
        for line in slow:
            with contextlib.suppress(ConnectionError):
                line.sendall(b"GET / HT")
        assert ask(server)[0] == 200
        until(lambda: sum(map(closed, slow)) >= 30 - 8)  # of too many, the oldest are ended
        end = time.monotonic() + 6
        while not all(map(closed, slow)) and time.monotonic() < end:  # busy, but too slow
            for line in slow:
                with contextlib.suppress(OSError):
                    line.sendall(b"T")
            time.sleep(0.2)
        assert all(map(closed, slow))
        assert ask(server)[0] == 200
