"""Downloads from a server on this machine: what has the right sum is kept, and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedpareto.errors import DataError
from fedpareto.federation.data import FILES, Data, _loaded, load
from fedpareto.federation.download import Remote, _lock, download

CONTENT = bytes(range(256)) * 100


class Server(ThreadingHTTPServer):
    """A server of files kept in memory, which remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.missing_bytes = 0  # how many bytes fewer than promised are sent
        self.answering = threading.Event()  # not set: a request is taken and kept waiting
        self.answering.set()

    def remote(self, path: str, content: bytes) -> Remote:
        """Serve this content, and return where it is."""
        self.files[f"/{path}"] = content
        return Remote(f"http://127.0.0.1:{self.server_port}/{path}", path, hashlib.md5(content).hexdigest())


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.answering.wait()
        if self.path not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):  # nobody waits any more
            self.wfile.write(content[: len(content) - self.server.missing_bytes])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.answering.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory that is not there yet."""
    return tmp_path / "data"


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def files(folder: Path) -> list[str]:
    return [name for name in everything(folder) if not (folder / name).is_dir()]


def test_a_file_with_the_right_sum_is_kept_below_the_data_directory(server: Server, folder: Path) -> None:
    path = download(server.remote("mnist/images.gz", CONTENT), folder)
    assert path == folder / "mnist" / "images.gz"
    assert path.read_bytes() == CONTENT
    assert everything(folder) == ["mnist", "mnist/images.gz"]


def test_a_file_that_is_there_is_not_fetched_again(server: Server, folder: Path) -> None:
    remote = server.remote("images.gz", CONTENT)
    first, again = download(remote, folder), download(remote, folder)
    assert first == again
    assert server.asked == ["/images.gz"]
    again.write_bytes(b"changed by the user")
    assert download(remote, folder).read_bytes() == b"changed by the user"
    assert server.asked == ["/images.gz"]


def test_a_file_with_the_wrong_sum_is_refused_and_nothing_is_left_behind(server: Server, folder: Path) -> None:
    remote = dataclasses.replace(server.remote("mnist/images.gz", CONTENT), md5="0" * 32)
    with pytest.raises(DataError) as refused:
        download(remote, folder)
    assert str(refused.value) == (
        f"{remote.url}: must have the md5 sum {'0' * 32}, found {hashlib.md5(CONTENT).hexdigest()}. It was not kept; fetch it by "
        f"hand to {folder / 'mnist' / 'images.gz'}.")
    assert files(folder) == []


def test_a_file_with_the_wrong_sum_does_not_touch_the_others(server: Server, folder: Path) -> None:
    download(server.remote("mnist/labels.gz", b"labels"), folder)
    with pytest.raises(DataError, match="must have the md5 sum"):
        download(dataclasses.replace(server.remote("mnist/images.gz", CONTENT), md5="0" * 32), folder)
    assert everything(folder) == ["mnist", "mnist/labels.gz"]


def test_a_server_without_the_file_is_an_error_of_the_network(server: Server, folder: Path) -> None:
    remote = dataclasses.replace(server.remote("images.gz", CONTENT), url=f"http://127.0.0.1:{server.server_port}/other.gz")
    with pytest.raises(OSError, match="404"):
        download(remote, folder)
    assert not folder.exists()


def test_no_server_at_all_is_an_error_of_the_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(OSError, match="refused"):
        download(Remote("http://127.0.0.1:9/images.gz", "images.gz", "0" * 32), folder)
    assert not folder.exists()


def test_a_server_that_does_not_answer_is_given_up(server: Server, folder: Path) -> None:
    remote = server.remote("images.gz", CONTENT)
    server.answering.clear()
    with pytest.raises(OSError, match="timed out"):
        download(remote, folder, timeout=0.2)
    assert not folder.exists()


def test_an_answer_that_breaks_off_leaves_nothing_behind(server: Server, folder: Path) -> None:
    remote = server.remote("images.gz", CONTENT)
    server.missing_bytes = 1000
    with pytest.raises(OSError, match=r"images\.gz broke off, 1,000 bytes before its end"):
        download(remote, folder)
    assert files(folder) == []


def test_an_answer_without_end_is_given_up_at_the_limit(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpareto.federation.download.LARGEST", 20_000)
    monkeypatch.setattr("fedpareto.federation.download.CHUNK", 1000)
    remote = server.remote("images.gz", CONTENT)
    with pytest.raises(DataError) as refused:
        download(remote, folder)
    assert str(refused.value) == f"{remote.url}: must have at most 20,000 bytes, found more. It was not kept."
    assert files(folder) == []


KILLED = """
    import os, sys
    from pathlib import Path
    from fedpareto.federation import download as module
    module.CHUNK = 5000
    class Stops:
        def __init__(self, made): self.made, self.pieces = made, 0
        def update(self, piece):
            self.pieces += 1
            if self.pieces == 3: os.kill(os.getpid(), 9)
    module.hashlib.md5 = lambda **_: Stops(None)
    module.download(module.Remote(*sys.argv[2:]), Path(sys.argv[1]))
"""


def test_a_download_that_was_killed_is_started_anew_and_what_it_left_is_removed(server: Server, folder: Path) -> None:
    remote = server.remote("images.gz", CONTENT)
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(folder), *dataclasses.astuple(remote)], timeout=60)
    assert ended.returncode == -9
    assert [name.endswith(".part") for name in files(folder)] == [True]
    assert download(remote, folder).read_bytes() == CONTENT
    assert files(folder) == ["images.gz"]


def test_what_another_process_is_downloading_is_left_to_it(server: Server, folder: Path) -> None:
    folder.mkdir()
    with (folder / "images.gz.1.part").open("wb") as held:
        _lock(held)
        download(server.remote("images.gz", CONTENT), folder)
        assert files(folder) == ["images.gz", "images.gz.1.part"]


FULL_DISK = """
    import resource, signal, sys
    from pathlib import Path
    from fedpareto.federation.download import Remote, _lock, download
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    try:
        download(Remote(*sys.argv[2:]), Path(sys.argv[1]))
    except OSError as error:
        print(error.strerror)
"""


def test_a_full_disk_is_an_error_and_no_file_is_taken_for_whole(server: Server, folder: Path) -> None:
    assert on_a_full_disk(server, folder) == "File too large\n"
    assert not (folder / "images.gz").exists()


def test_a_full_disk_leaves_nothing_behind(server: Server, folder: Path) -> None:
    on_a_full_disk(server, folder)
    assert folder.is_dir()
    assert everything(folder) == []


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing_behind(
        server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        assert self.read_bytes() == CONTENT
        raise PermissionError(13, "Permission denied", str(target))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        download(server.remote("images.gz", CONTENT), folder)
    assert everything(folder) == []


def on_a_full_disk(server: Server, folder: Path) -> str:
    """Download in a process that can write only a part of the file, and return what it said."""
    code, words = textwrap.dedent(FULL_DISK), dataclasses.astuple(server.remote("images.gz", CONTENT))
    ended = subprocess.run([sys.executable, "-c", code, str(folder), *words], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout


# whole data sets


@pytest.fixture
def served(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
           idx_files: Callable[..., dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Serve a small data set in place of MNIST, and return its arrays."""
    arrays = idx_files(tmp_path / "made")
    remotes = tuple(server.remote(r.path, (tmp_path / "made" / Path(r.path).name).read_bytes()) for r in FILES["mnist"].remotes)
    monkeypatch.setitem(FILES, "mnist", dataclasses.replace(FILES["mnist"], remotes=remotes))
    _loaded.cache_clear()
    return arrays


def test_a_data_set_that_is_missing_is_fetched_and_read(server: Server, served: dict[str, np.ndarray], folder: Path) -> None:
    found = load(Data("mnist", directory=str(folder)))
    assert np.array_equal(found.x_train[:, 0], served["x_train"])
    assert np.array_equal(found.y_test, served["y_test"])
    assert len(server.asked) == 4
    _loaded.cache_clear()
    load(Data("mnist", directory=str(folder)))
    assert len(server.asked) == 4
    assert not [name for name in everything(folder) if name.endswith(".part")]


@pytest.mark.usefixtures("served")
def test_only_what_is_missing_is_fetched(server: Server, folder: Path) -> None:
    load(Data("mnist", directory=str(folder)))
    server.asked.clear()
    _loaded.cache_clear()
    (folder / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    load(Data("mnist", directory=str(folder)))
    assert server.asked == ["/mnist/t10k-labels-idx1-ubyte.gz"]


@pytest.mark.usefixtures("served")
def test_a_data_set_with_one_wrong_file_is_refused_and_can_be_fetched_later(server: Server, folder: Path) -> None:
    name = "/mnist/t10k-images-idx3-ubyte.gz"
    right, server.files[name] = server.files[name], b"another file"
    with pytest.raises(DataError, match=f"{name}: must have the md5 sum"):
        load(Data("mnist", directory=str(folder)))
    assert not (folder / name[1:]).exists()
    server.files[name] = right
    assert len(load(Data("mnist", directory=str(folder))).y_test) == 20


@pytest.mark.usefixtures("served")
def test_a_data_set_that_breaks_off_on_its_way_is_refused_with_the_ways_out_and_can_be_fetched_later(
        server: Server, folder: Path) -> None:
    server.missing_bytes = 10
    with pytest.raises(DataError) as refused:
        load(Data("mnist", directory=str(folder)))
    message = str(refused.value)
    name = FILES["mnist"].remotes[0].url
    assert message.startswith(f"mnist: needs its files in {folder}, found none and could not download them ({name} broke "
                              "off, 10 bytes before its end). Put one of these there: mnist.npz; or mnist/train-images-idx3-ubyte.gz and ")
    assert message.endswith(" Or name another folder: data.directory in the study, or FEDPARETO_DATA.")
    assert files(folder) == []
    server.missing_bytes = 0
    assert len(load(Data("mnist", directory=str(folder))).y_test) == 20


def test_a_data_set_that_cannot_be_written_is_refused(served: dict[str, np.ndarray], folder: Path) -> None:
    assert served
    folder.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="could not download them") as refused:
        load(Data("mnist", directory=str(folder)))
    assert str(folder) in str(refused.value)
    assert folder.read_text() == "a file where the folder should be"


@pytest.mark.parametrize("name", FILES)
def test_every_remote_file_is_named_where_it_is_read_from_and_has_a_sum(name: str) -> None:
    files = FILES[name]
    assert tuple(remote.path for remote in files.remotes) in [names for names, _ in files.ways]
    for remote in files.remotes:
        assert remote.url.rsplit("/", 1)[1] == Path(remote.path).name
        assert len(bytes.fromhex(remote.md5)) == 16


def test_all_files_are_asked_for_by_https() -> None:
    assert [remote.url for files in FILES.values() for remote in files.remotes if not remote.url.startswith("https://")] == []
