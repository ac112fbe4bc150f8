"""Work shared out among processes and threads comes back whole and in order, whatever happens to a process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import gmpy2
import pytest

from fedpareto.crypto import parallel, powers
from fedpareto.errors import MissingPackage


def squares(items):
    return [x * x for x in items]


@pytest.mark.parametrize("share_out", [parallel.forked, parallel.threaded])
@pytest.mark.parametrize("workers", [None, 1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
def test_results_come_in_order(share_out, workers, size):
    assert share_out(squares, range(size), workers) == squares(range(size))


def test_processes_do_share_the_work():
    assert len(set(parallel.forked(lambda items: [os.getpid() for _ in items], range(100), 2))) == 2


def test_large_results_pass_through_the_pipe():
    assert sum(map(len, parallel.forked(lambda items: [b"x" * 10**5 for _ in items], range(64), 2))) == 64 * 10**5


def test_where_there_is_no_fork_one_process_does_it_all(monkeypatch):
    monkeypatch.setattr(parallel, "FORKS", False)
    assert set(parallel.forked(lambda items: [os.getpid() for _ in items], range(100), 2)) == {os.getpid()}


def test_work_of_a_process_that_dies_is_done_again():
    parent = os.getpid()

    def dies(items):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return squares(items)

    assert parallel.forked(dies, range(100), 3) == squares(range(100))


def test_an_error_reaches_the_caller_and_leaves_no_process(monkeypatch):
    started, real = [], parallel._child
    monkeypatch.setattr(parallel, "_child", lambda *words: started.append(real(*words)) or started[-1])

    def fails(items):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        parallel.forked(fails, range(100), 3)
    assert len(started) == 2
    for pid, pipe in started:
        assert pipe.closed
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_a_plain_script_uses_processes(tmp_path):
    """Without `if __name__ == "__main__"`, and nothing printed twice."""
    script = tmp_path / "script.py"
    script.write_text("import numpy as np\nfrom fedpareto.crypto import *\nprint('start')\n"
                      "key = PrivateKey.generate(512, allow_insecure=True)\nclient = PaillierClient(key, Codec(512, 4, 5), workers=2)\n"
                      "print((client.decrypt(client.encrypt(np.arange(400) % 9)) == np.arange(400) % 9).all())\n")
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["start", "True"]


def test_powers_agree_with_and_without_openssl(monkeypatch):
    modulus = int(gmpy2.next_prime(1 << 300)) ** 2
    fast = powers.secret_power(12345, modulus)
    monkeypatch.setattr(powers, "_openssl", lambda: None)
    plain = powers.secret_power(12345, modulus)
    for x in (0, 1, 2, modulus - 1, modulus, modulus + 5, 1 << 900):
        assert fast(gmpy2.mpz(x)) == plain(gmpy2.mpz(x)) == pow(x, 12345, modulus)


def test_an_openssl_that_is_wrong_is_not_used(monkeypatch):
    monkeypatch.setattr(powers, "_Power", lambda *_: lambda x: gmpy2.mpz(1))
    assert powers.secret_power(5, 1001)(gmpy2.mpz(2)) == 32


def test_an_openssl_without_the_functions_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda path: object())
    assert powers._openssl.__wrapped__() is None


def test_an_openssl_that_fails_is_stood_in_for():
    class Failing:
        def __getattr__(self, name):
            return lambda *_: 0

    power = powers._Power(Failing(), 5, 21, lambda x: "stand-in")
    assert power(gmpy2.mpz(2)) == "stand-in"


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    from fedpareto.crypto import lattice

    monkeypatch.setitem(sys.modules, "gmpy2", None)
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(MissingPackage, match=r"Paillier encryption needs the package gmpy2.*pip install 'fedpareto\[encryption\]'"):
        powers.gmp()
    with pytest.raises(MissingPackage, match=r"lattice encryption needs the package tenseal.*pip install 'fedpareto\[lattice\]'"):
        lattice.tenseal()


def test_the_codec_needs_neither_package():
    code = ("import sys; import fedpareto.crypto as c; import numpy as np; k = c.Codec(2048, 100, 5); k.pack(np.arange(9)); "
            "c.clip_of([1.0], 9); print({'gmpy2', 'tenseal', 'torch', '_hashlib'} & set(sys.modules) - {'_hashlib'})")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
