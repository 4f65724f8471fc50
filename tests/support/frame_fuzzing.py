"""Mutated frames: for the tests, and by the million for benchmarks/fuzz_frames.py."""

from random import Random

import numpy as np

from diamond.sites.transport.wire_format import (
    Envelope,
    FrameError,
    checksum,
    decode,
    encode,
    layout_of,
)

ENVELOPE = Envelope("d1ce" * 8, 3, 7)
ARRAYS = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.float64(0.5).reshape(())]
LAYOUT = layout_of(ARRAYS)
FRAME = encode(ENVELOPE, ARRAYS)


def reseal(raw: bytes) -> bytes:
    """The frame with the checksum of what it now holds."""
    return raw[:-4] + checksum(raw[:-4]).to_bytes(4, "little")


def mutate(raw: bytes, random: Random) -> bytes:
    """One to four changes: bytes flipped, cut out, inserted, repeated, or the end cut off."""
    out = bytearray(raw)
    for _ in range(random.randrange(1, 5)):
        place, length = int(random.random() * (len(out) + 1)), random.randrange(1, 9)
        kind = random.randrange(5)
        if kind == 0:
            out[place : place + 1] = random.randbytes(1)
        elif kind == 1:
            del out[place : place + length]
        elif kind == 2:
            out[place:place] = random.randbytes(length)
        elif kind == 3:
            out[place:place] = out[place : place + length]
        else:
            del out[place:]
    return bytes(out)


def fuzz(count: int, seed: int) -> int:
    """Decode `count` mutated frames, half of them with a right checksum; how many were accepted.

    Raises unless each is refused by `FrameError` or has finite numbers of the right shapes.
    """
    random, accepted = Random(seed), 0
    for _ in range(count):
        raw = mutate(bytes(FRAME), random)
        sealed = reseal(raw) if random.random() < 0.5 and len(raw) >= 4 else raw
        try:
            arrays = decode(sealed, ENVELOPE, LAYOUT)
        except FrameError:
            continue
        accepted += 1
        assert layout_of(arrays) == LAYOUT and all(np.isfinite(a).all() for a in arrays)
    return accepted
