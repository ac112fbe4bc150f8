"""The commands that make, show and check the keys of encrypted sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedpareto.cli.base import cli, json_option, say

if TYPE_CHECKING:
    from fedpareto.crypto.keycheck import KeyFile

file_argument = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@cli.group()
def keys() -> None:
    """Make, show and check the keys with which clients hide their uploads from the server."""


@keys.command()
@file_argument
@click.option(
    "--scheme",
    type=click.Choice(["paillier", "bfv"]),
    default="paillier",
    show_default=True,
    help="As in the study's mechanism; a Paillier key serves degree 2 (Damgård–Jurik) too.",
)
@click.option(
    "--bits",
    type=click.IntRange(17, 16384),
    help="Length of a Paillier n, 3072 if left out, or bits of a BFV plaintext, 20.",
)
@json_option
def make(file: Path, scheme: str, bits: int | None, as_json: bool) -> None:
    """Make a key from the system's randomness: FILE for all clients, FILE.pub for the server.

    Only its owner may read FILE. Make it where a client runs, and hand it to the other clients by
    a way that the server cannot read.
    """
    from fedpareto.crypto import BfvKey, PrivateKey, write_private_key, write_public_key
    from fedpareto.crypto.keycheck import look
    from fedpareto.errors import SettingError

    if file.name in ("", ".."):
        raise SettingError(f"FILE: must name a file, found {str(file)!r}. Name one.")
    public = file.with_name(file.name + ".pub")
    for path in (file, public):
        if path.exists() or path.is_symlink():
            raise SettingError(
                f"FILE: must be new, found {path}. A key is never written over: name another, or "
                "remove it if that key is no longer needed."
            )
    if scheme == "bfv":
        lattice = BfvKey.generate(20 if bits is None else bits)
        write_private_key(lattice, file)
        write_public_key(lattice.public, public)
    else:
        key = PrivateKey.generate(3072 if bits is None else bits)
        write_private_key(key, file)
        write_public_key(key.public, public)
    _tell([look(file), look(public)], as_json)


@keys.command()
@file_argument
@json_option
def show(file: Path, as_json: bool) -> None:
    """Show what a key file holds, and nothing that is secret."""
    from fedpareto.crypto.keycheck import look

    _tell([look(file)], as_json)


@keys.command()
@file_argument
@click.option(
    "--public",
    type=click.Path(path_type=Path),
    help="The server's file, which must be the public half.",
)
@json_option
def check(file: Path, public: Path | None, as_json: bool) -> None:
    """Try a client's key: who may read it, whether it works, whether the server has its half."""
    from fedpareto.crypto.keycheck import check as tried

    found = tried(file, public)
    _tell([found], as_json)
    if not as_json:
        say("It works." if public is None else f"It works, and {public} is its public half.")


def _tell(files: list[KeyFile], as_json: bool) -> None:
    """Print what may be told of key files."""
    if as_json:
        rows = [{**vars(one), "path": str(one.path)} for one in files]
        say(json.dumps({"keys": rows}))
        return
    for one in files:
        kind = "private key, for clients alone" if one.secret else "public key, for the server"
        length = "bits of a plaintext" if one.scheme == "bfv" else "bits"
        say(
            f"{one.path}: {one.scheme} {kind}, {one.bits} {length}, {one.security} bits of "
            f"security, fingerprint {one.fingerprint}, mode {one.mode}"
        )
