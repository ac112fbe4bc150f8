"""Certificates, keys and data for a deployment on one machine."""

from __future__ import annotations

import datetime
import io
import ipaddress
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.errors import DeploymentError, MissingPackage
from fedpareto.federation.data import Data, load
from fedpareto.federation.setup import Setup
from fedpareto.federation.split import deal, dealt
from fedpareto.files import json_of, write_new, write_whole
from fedpareto.mechanisms import BatchCrypt

SECRET = 0o600
MOST_BYTES = 2**20


def write_certificates(folder: Path) -> None:
    """Write ca.crt, server.pem and server.key for 127.0.0.1: for this machine, for 30 days."""
    x509, hashes, serialization, ec = _cryptography()
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedpareto local")])
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    places = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    ca = _certificate(x509, ca_name, ca_name, ca_key.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = _certificate(x509, name, ca_name, key.public_key())
    made = made.add_extension(x509.SubjectAlternativeName(places), critical=False)
    pem = serialization.Encoding.PEM
    write_whole(folder / "ca.crt", ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    write_whole(folder / "server.pem", made.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    held = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_new(folder / "server.key", held, SECRET)


def write_node_key(folder: Path, name: str) -> None:
    """Write the key pair by which a SuperNode is known: NAME and NAME.pub."""
    _, _, serialization, ec = _cryptography()
    key = ec.generate_private_key(ec.SECP384R1())
    held = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_new(folder / name, held, SECRET)
    write_whole(folder / f"{name}.pub", public)


def write_sum_key(encryption: BatchCrypt, path: Path) -> None:
    """Write the key that sites share, and NAME.pub for the server, where sums are encrypted."""
    from fedpareto.crypto import BfvKey, PrivateKey, write_private_key, write_public_key

    if encryption.scheme == "bfv":
        lattice = BfvKey.generate()
        write_private_key(lattice, path)
        write_public_key(lattice.public, public_of(path))
    else:
        key = PrivateKey.generate(encryption.key_bits)
        write_private_key(key, path)
        write_public_key(key.public, public_of(path))


def public_of(path: Path) -> Path:
    """Return where the public half of a key is."""
    return path.with_name(f"{path.name}.pub")


def write_sites(demo: Path, folder: Path) -> None:
    """Deal the data of the study to sites: site0.npz and so on, as its first repeat has them."""
    try:
        told = json_of(demo, MOST_BYTES)
        where = Data(**told["data"])
        seed = int(told["seed"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DeploymentError(
            f"{demo}: must name the study's data and how they are dealt, found: {error}. Export it "
            "anew."
        ) from None
    data = load(where)
    train, drawn = deal(data.y_train, where, seed, data.sites_train)
    test = dealt(data.y_test, where, drawn, data.sites_test)
    for k in range(where.clients):
        mine, tested = train.of(k), test.of(k)
        arrays = {"x_train": data.x_train[mine], "y_train": data.y_train[mine]}
        arrays |= {"x_test": data.x_test[tested], "y_test": data.y_test[tested]}
        held = io.BytesIO()
        np.savez(held, **arrays)  # type: ignore[arg-type]
        write_whole(folder / f"site{k}.npz", held.getvalue())


def demo_of(setup: Setup) -> dict[str, Any]:
    """Return what `write_sites` needs to deal the data of a study."""
    from dataclasses import asdict

    return {"data": asdict(setup.where), "seed": setup.split_seed}


def _certificate(x509: Any, name: Any, issuer: Any, public: Any) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
    )


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingPackage("flwr", "flower", "a deployment with Flower") from None
    return x509, hashes, serialization, ec
