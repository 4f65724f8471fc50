"""A checksum of many bytes that costs no more than to copy them.

CRC-32; of 64 kB and more, whole blocks of 4 kB count by sums of their 64-bit words: the sum of each
block, and over all blocks the sums of their first words, second words, and so on. To change one
word, or two, or to swap two, changes one of these sums at least.
"""

import zlib
from typing import Any

import numpy as np

WORDS = 512  # of a block
FEW = 16  # blocks of which CRC-32 alone is quicker


def checksum(content: Any) -> int:
    """Of bytes, as a number of 32 bits."""
    view = memoryview(content)
    count = len(view) // (8 * WORDS)
    if count < FEW:
        return zlib.crc32(view)
    words = np.frombuffer(view, "<u8", count * WORDS).reshape(count, WORDS)
    found = zlib.crc32(np.add.reduce(words, axis=1))
    found = zlib.crc32(np.add.reduce(words, axis=0), found)
    return zlib.crc32(view[words.nbytes :], found)
