"""Channel models: lost, noisy, faded, compressed and late messages.

network = diamond.network.ring(8).through(channels.drops(0.05), channels.top(0.1))
"""

from diamond.network.channels.compressed_channel import (
    low_rank,
    quantized,
    random,
    rounded,
    sign,
    top,
)
from diamond.network.channels.delay import delay
from diamond.network.channels.drops import drops
from diamond.network.channels.fading import fading
from diamond.network.channels.receiver_noise import noise, over_the_air

__all__ = [
    "delay",
    "drops",
    "fading",
    "low_rank",
    "noise",
    "over_the_air",
    "quantized",
    "random",
    "rounded",
    "sign",
    "top",
]
