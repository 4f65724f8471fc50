"""What channels cost: the exchange of a message of 100,000 numbers, beside a round.

    python benchmarks/channels.py [--wide]

64 agents on a ring; x and its tracker, each of 100,000 numbers. `--wide`: beside a round of the
wide problem of `benchmarks/gpu.py`, for a GPU.
"""

import argparse

import jax
import jax.numpy as jnp
from gpu import best, meta, rounds

import diamond
from diamond.core.sampling import ExchangeId, key
from diamond.interface.round_interface import Message
from diamond.network import channels
from diamond.network.mixing.lossy_mixer import LossyMixer, make_mixer

AGENTS, SIZE, COUNT = 64, 100_000, 20
AGENT_AXES = {
    "none": [],
    "drops(0.05)": [channels.drops(0.05)],
    "delay(1)": [channels.delay(1)],
    "bfloat16": [channels.rounded("bfloat16")],
    "quantized(4)": [channels.quantized(4)],
    "sign": [channels.sign()],
    "top(0.01)": [channels.top(0.01)],
    "noise(20 dB)": [channels.noise(snr=20)],
}


def exchange(given):
    """Seconds of one exchange."""
    mixer = make_mixer(diamond.network.ring(AGENTS).through(*given))
    shape = jax.ShapeDtypeStruct((SIZE,), jnp.float32)
    kept = mixer.start([Message(shape, shape)]) if isinstance(mixer, LossyMixer) else None
    told = Message(*jax.random.normal(key(0), (2, AGENTS, SIZE)))

    @jax.jit
    def go(mixer, told, kept):
        def one(t, carry):
            told, kept = carry
            change, kept = mixer.exchange(told, ExchangeId(key(0), t), kept)
            return jax.tree.map(jnp.add, told, change), kept

        return jax.lax.fori_loop(0, COUNT, one, (told, kept))

    return best(lambda: go(mixer, told, kept)) / COUNT


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wide", action="store_true")
    whole = None
    if parser.parse_args().wide:
        go, _ = rounds(meta(AGENTS, (1024, 1024)), 256, "float32", COUNT)
        whole = best(go) / COUNT
        print(f"a round of the wide problem: {1e3 * whole:.2f} ms", flush=True)
    plain = exchange(AGENT_AXES["none"])
    for name, given in AGENT_AXES.items():
        seconds = exchange(given)
        beside = f", {100 * (seconds - plain) / whole:5.1f} % of it more" if whole else ""
        print(f"{name:13} {1e3 * seconds:8.3f} ms an exchange{beside}", flush=True)
