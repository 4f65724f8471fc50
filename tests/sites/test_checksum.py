"""The checksum of frames detects every small damage, whatever their length."""

import zlib

import numpy as np
import pytest

from diamond.sites.transport.wire_format import MIN_BLOCKS, WORDS_PER_BLOCK, checksum

pytestmark = pytest.mark.quick
BLOCK = 8 * WORDS_PER_BLOCK
LONG = np.random.default_rng(0).bytes((MIN_BLOCKS + 3) * BLOCK + 5)


def changed(content: bytes, **words: bytes) -> bytes:
    """The bytes with others from these places on."""
    out = bytearray(content)
    for place, new in words.items():
        start = int(place[1:])
        out[start : start + len(new)] = new
    return bytes(out)


def test_few_bytes_have_their_crc():
    assert checksum(LONG[: MIN_BLOCKS * BLOCK - 1]) == zlib.crc32(LONG[: MIN_BLOCKS * BLOCK - 1])


def test_many_bytes_have_the_crc_of_their_sums():
    words = [
        int.from_bytes(LONG[i : i + 8], "little") for i in range(0, (MIN_BLOCKS + 3) * BLOCK, 8)
    ]
    blocks = [words[i : i + WORDS_PER_BLOCK] for i in range(0, len(words), WORDS_PER_BLOCK)]
    sums = [sum(block) for block in blocks] + [sum(column) for column in zip(*blocks)]
    written = b"".join((one % 2**64).to_bytes(8, "little") for one in sums) + LONG[-5:]
    assert checksum(LONG) == zlib.crc32(written)
    assert checksum(memoryview(b"." + LONG)[1:]) == checksum(LONG)  # wherever the bytes lie


@pytest.mark.parametrize("place", [0, 8, BLOCK - 1, 7 * BLOCK + 12, len(LONG) - 6, len(LONG) - 1])
def test_every_bit_counts(place):
    for bit in range(8):
        assert checksum(
            changed(LONG, **{f"_{place}": bytes([LONG[place] ^ 1 << bit])})
        ) != checksum(LONG)


@pytest.mark.parametrize("apart", [8, BLOCK, BLOCK + 8])
def test_swapped_words_and_cancelling_changes_are_detected(apart):
    one, other = 3 * BLOCK + 40, 3 * BLOCK + 40 + apart
    swapped = {f"_{one}": LONG[other : other + 8], f"_{other}": LONG[one : one + 8]}
    assert checksum(changed(LONG, **swapped)) != checksum(LONG)
    more = [int.from_bytes(LONG[i : i + 8], "little") + d for i, d in ((one, 4), (other, -4))]
    shifted = {f"_{i}": (new % 2**64).to_bytes(8, "little") for i, new in zip((one, other), more)}
    assert checksum(changed(LONG, **shifted)) != checksum(LONG)
