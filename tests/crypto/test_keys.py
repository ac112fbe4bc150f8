"""Keys: bad ones are refused, secrets stay out of sight, and files belong to their owner alone."""

from __future__ import annotations

import os
import pickle
import stat

import gmpy2
import numpy as np
import pytest

from fedpareto.crypto import (
    BfvClient,
    BfvCodec,
    BfvKey,
    BfvServer,
    PrivateKey,
    PublicKey,
    kind_of,
    read_bfv_key,
    read_bfv_public_key,
    read_private_key,
    read_public_key,
    write_private_key,
    write_public_key,
)
from fedpareto.crypto.keys import primitive_root
from fedpareto.errors import BadKey, SettingError

KEY = PrivateKey.generate(512, allow_insecure=True)


@pytest.mark.parametrize("bits", [128, 256, 514, 1024])
def test_a_generated_key_has_the_length_and_the_form_asked_for(bits):
    key = PrivateKey.generate(bits, allow_insecure=True)
    assert key.public.bits == bits
    assert key.p % 4 == key.q % 4 == 3  # a Blum number
    assert gmpy2.gcd(key.p - 1, key.q - 1) == 2
    for p in (key.p, key.q):
        root = primitive_root(p)
        assert gmpy2.jacobi(root, p) == -1


def test_a_primitive_root_has_the_full_order():
    for p in (7, 23, 1019, 65537):
        root = primitive_root(p)
        assert len({pow(root, e, p) for e in range(p - 1)}) == p - 1


def prime(bits, avoid=0):
    found = gmpy2.next_prime(3 << (bits - 2))
    while found == avoid:
        found = gmpy2.next_prime(found)
    return int(found)


@pytest.mark.parametrize(("p", "q", "message"), [
    (KEY.p, KEY.p, "must differ"), (KEY.p, prime(128) * prime(128), "must be primes"), (KEY.p * 3, KEY.q, "must be primes"),
    (KEY.p, prime(128), "half of n's bits each, found 256 and 128"), (1.5, KEY.q, "must be primes"), (-KEY.p, KEY.q, "must be primes")],
    ids=["same", "composite", "multiple", "short", "fraction", "negative"])
def test_bad_primes_are_refused(p, q, message):
    """T8."""
    with pytest.raises(BadKey, match=message) as raised:
        PrivateKey(p, q, allow_insecure=True)
    assert str(KEY.p) not in str(raised.value)


def test_a_product_that_shares_a_factor_with_phi_is_refused():
    with pytest.raises(BadKey, match="no factor in common"):
        PrivateKey(43, 7, allow_insecure=True)


def test_short_keys_need_a_flag():
    for make in (lambda: PrivateKey(KEY.p, KEY.q), lambda: PrivateKey.generate(1024), lambda: PublicKey(KEY.public.n)):
        with pytest.raises(BadKey, match=r"must have at least 2048 bits, found \d+.*allow_insecure"):
            make()


@pytest.mark.parametrize("bits", [127, 64, 20000, 2048.0, True])
def test_a_length_must_make_sense(bits):
    with pytest.raises(SettingError, match="bits: must be an even number from 128 to 16384"):
        PrivateKey.generate(bits, allow_insecure=True)


@pytest.mark.parametrize("n", [1, 2**511, prime(512), prime(256) ** 2, "15"], ids=["one", "even", "prime", "square", "text"])
def test_a_public_key_must_be_an_odd_composite(n):
    with pytest.raises(BadKey, match="must be an odd product of two primes"):
        PublicKey(n, allow_insecure=True)


def test_nothing_shows_the_primes():
    shown = " ".join([repr(KEY), str(KEY), f"{KEY}", repr([KEY]), repr(KEY.public)])
    for secret in (KEY.p, KEY.q):
        assert str(secret) not in shown
        assert f"{secret:x}" not in shown
    assert "secret not shown" in repr(KEY)


def test_a_public_key_holds_nothing_of_the_private_one():
    public = PublicKey(KEY.public.n, allow_insecure=True)
    public.fingerprint  # noqa: B018 - computed once and kept
    assert set(vars(public)) == {"n", "allow_insecure", "fingerprint"}
    assert pickle.loads(pickle.dumps(KEY.public)) == public
    assert not any(hasattr(public, name) for name in ("p", "q", "decrypt", "private"))


def test_keys_come_back_from_their_files(tmp_path):
    write_private_key(KEY, tmp_path / "private.json")
    write_public_key(KEY.public, tmp_path / "public.json")
    assert read_private_key(tmp_path / "private.json", allow_insecure=True) == KEY
    assert read_public_key(tmp_path / "public.json", allow_insecure=True) == KEY.public


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_private_file_is_its_owners_alone_from_the_first_moment(tmp_path, monkeypatch):
    modes, old = [], os.umask(0)
    real = os.fdopen

    def watched(file, *words, **more):
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        return real(file, *words, **more)

    monkeypatch.setattr(os, "fdopen", watched)
    try:
        write_private_key(KEY, tmp_path / "key")
    finally:
        os.umask(old)
    assert modes == [0o600]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_private_file_that_others_can_read_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    write_private_key(KEY, path)
    path.chmod(mode)
    with pytest.raises(BadKey, match=rf"found mode {mode:o}. Run: chmod 600 {path}"):
        read_private_key(path, allow_insecure=True)


def test_a_key_file_is_never_replaced(tmp_path):
    write_private_key(KEY, tmp_path / "key")
    with pytest.raises(BadKey, match="must be a new file"):
        write_private_key(PrivateKey.generate(512, allow_insecure=True), tmp_path / "key")
    assert read_private_key(tmp_path / "key", allow_insecure=True) == KEY
    with pytest.raises(BadKey, match="must be a file that can be written"):
        write_public_key(KEY.public, tmp_path / "nowhere" / "key")


def test_a_file_half_written_is_removed(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadKey, match="must be a file that can be written, found: No space left"):
        write_private_key(KEY, tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "fedpareto paillier private key"}', '{"kind": "other", "p": "3"}', "\x00\xff",
                                  '{"kind": "fedpareto paillier private key", "p": "xyz", "q": "1"}', '{"kind": ["a"]}'])
def test_a_file_that_is_no_key_is_refused(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(BadKey, match="must hold a fedpareto paillier private key, found something else"):
        read_private_key(path)


def test_a_public_file_is_no_private_one_and_a_missing_file_is_named(tmp_path):
    write_public_key(KEY.public, tmp_path / "public")
    (tmp_path / "public").chmod(0o600)
    with pytest.raises(BadKey, match="must hold a fedpareto paillier private key, found a fedpareto paillier public key"):
        read_private_key(tmp_path / "public")
    with pytest.raises(BadKey, match="No such file"):
        read_public_key(tmp_path / "missing")


def test_a_key_is_checked_again_when_it_is_read(tmp_path):
    path = tmp_path / "key"
    path.write_text(f'{{"kind": "fedpareto paillier private key", "p": "{KEY.p:x}", "q": "{KEY.p:x}"}}')
    path.chmod(0o600)
    with pytest.raises(BadKey, match="must differ"):
        read_private_key(path, allow_insecure=True)


LATTICE = BfvKey.generate()


def test_bfv_keys_come_back_from_their_files(tmp_path):
    write_private_key(LATTICE, tmp_path / "key")
    write_public_key(LATTICE.public, tmp_path / "key.pub")
    assert read_bfv_key(tmp_path / "key") == LATTICE
    assert read_bfv_public_key(tmp_path / "key.pub") == LATTICE.public
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [kind_of(tmp_path / name) for name in ("key", "key.pub")] == [("bfv", True), ("bfv", False)]
    sum_of_two = BfvServer(LATTICE.public, BfvCodec(2))
    client = BfvClient(read_bfv_key(tmp_path / "key"), BfvCodec(2))
    one = client.encrypt(np.array([1, -2, 3]))
    np.testing.assert_array_equal(client.decrypt(sum_of_two.add(one, client.encrypt(np.array([4, 4, 4])))), [5, 2, 7])


def test_a_bfv_key_file_that_others_can_read_is_refused(tmp_path):
    write_private_key(LATTICE, tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(BadKey, match=r"must be readable by its owner alone, found mode 640. Run: chmod 600"):
        read_bfv_key(tmp_path / "key")


def test_no_secret_bfv_key_is_written_where_a_public_one_goes(tmp_path):
    with pytest.raises(BadKey, match=r"must be bytes that BfvKey.generate made, beginning with 'fedpareto bfv public key 2'"):
        write_public_key(LATTICE.secret, tmp_path / "key.pub")
    assert not (tmp_path / "key.pub").exists()


def test_the_public_half_of_a_bfv_key_holds_nothing_of_the_secret():
    bits = LATTICE.secret[len(LATTICE.public) - 32 + 4 :]  # after magic, bits and the public part
    pieces = {bits[i : i + 16] for i in range(0, len(bits) - 48, 16)}
    assert not any(piece in LATTICE.public for piece in pieces)
    assert BfvKey.of(LATTICE.secret) == LATTICE
    assert "secret not shown" in repr(LATTICE)


def test_a_key_file_of_another_scheme_is_named(tmp_path):
    write_private_key(KEY, tmp_path / "paillier")
    write_private_key(LATTICE, tmp_path / "bfv")
    with pytest.raises(BadKey, match=r"must hold a BFV secret key, found a fedpareto paillier private key. Name another file."):
        read_bfv_key(tmp_path / "paillier")
    with pytest.raises(BadKey, match=r"found a BFV secret key. Name another file."):
        read_bfv_public_key(tmp_path / "bfv")
    (tmp_path / "note").write_text("hello")
    with pytest.raises(BadKey, match="must be a key file that fedpareto wrote, found something else"):
        kind_of(tmp_path / "note")
    with pytest.raises(BadKey, match="must be a key file that can be read, found: No such file"):
        kind_of(tmp_path / "none")
