"""What of a secret key would lie in memory, and whether it does: memory is read by way of /proc."""

from __future__ import annotations

from fedpareto.crypto import BfvKey

PIECE = 24  # bytes that are looked for
UNREADABLE = ("[vvar]", "[vsyscall]", "[vvar_vclock]")


def pieces_of(key):
    """Return what of a key would be in memory: as a file holds it, as Python's own integers lie, as GMP's limbs do."""
    if isinstance(key, BfvKey):
        start = len(key.public)  # the secret part comes after the public one
        return [key.secret[at : at + PIECE] for at in range(start, len(key.secret) - 200, 5000)]
    found = []
    for prime in (key.p, key.q):
        limbs = prime.to_bytes(128, "little")
        digits = b"".join((prime >> 30 * i & 2**30 - 1).to_bytes(4, "little") for i in range(34))
        texts = (f"{prime:x}".encode(), str(prime).encode(), prime.to_bytes(128, "big"))
        found += [whole[40 : 40 + PIECE] for whole in (limbs, digits, *texts)]
    return found


def in_memory(pid, pieces):
    """Return how many of the pieces are in the memory of a process."""
    missing = set(pieces)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            place, modes = line.split()[:2]
            if not modes.startswith("r") or line.rstrip().endswith(UNREADABLE):
                continue
            start, end = (int(part, 16) for part in place.split("-"))
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue
            missing -= {piece for piece in missing if piece in data}
    return len(set(pieces)) - len(missing)
