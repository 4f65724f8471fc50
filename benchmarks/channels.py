"""What channels cost: the exchange of a message of 100,000 numbers, beside a round.

    python benchmarks/channels.py [--wide] [--small]

64 agents on a ring; x and its tracker, each of 100,000 numbers. `--wide`: beside a round of the
wide problem of `benchmarks/gpu.py`, for a GPU. `--small`: 8 agents and 1,000 numbers.
"""

import argparse
import sys

import jax
import jax.numpy as jnp
from gpu import best, meta, rounds

import diamond
from diamond.core.sampling import ExchangeId, key
from diamond.interface.round_interface import Message
from diamond.network import channels
from diamond.network.mixing.lossy_mixer import LossyMixer, make_mixer

AGENTS, SIZE, COUNT = (8, 1000, 2) if "--small" in sys.argv else (64, 100_000, 20)
CASES = {
    "none": [],
    "drops(0.05)": [channels.drops(0.05)],
    "delay(1)": [channels.delay(1)],
    "bfloat16": [channels.rounded("bfloat16")],
    "quantized(4)": [channels.quantized(4)],
    "sign": [channels.sign()],
    "top(0.01)": [channels.top(0.01)],
    "noise(20 dB)": [channels.noise(snr=20)],
}


def seconds_of_exchange(channel_list):
    """Seconds of one exchange."""
    mixer = make_mixer(diamond.network.ring(AGENTS).through(*channel_list))
    shape = jax.ShapeDtypeStruct((SIZE,), jnp.float32)
    state = mixer.start([Message(shape, shape)]) if isinstance(mixer, LossyMixer) else None
    message = Message(*jax.random.normal(key(0), (2, AGENTS, SIZE)))

    @jax.jit
    def run_exchanges(mixer, message, state):
        def run_exchange(t, carry):
            message, state = carry
            change, state = mixer.exchange(message, ExchangeId(key(0), t), state)
            return jax.tree.map(jnp.add, message, change), state

        return jax.lax.fori_loop(0, COUNT, run_exchange, (message, state))

    return best(lambda: run_exchanges(mixer, message, state)) / COUNT


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--small", action="store_true", help="few agents and numbers")
    round_seconds = None
    if parser.parse_args().wide:
        run_rounds, _ = rounds(meta(AGENTS, (1024, 1024)), 256, "float32", COUNT)
        round_seconds = best(run_rounds) / COUNT
        print(f"a round of the wide problem: {1e3 * round_seconds:.2f} ms", flush=True)
    plain = seconds_of_exchange(CASES["none"])
    for name, channel_list in CASES.items():
        seconds = seconds_of_exchange(channel_list)
        comparison = (
            f", {100 * (seconds - plain) / round_seconds:5.1f} % of it more"
            if round_seconds
            else ""
        )
        print(f"{name:13} {1e3 * seconds:8.3f} ms an exchange{comparison}", flush=True)
