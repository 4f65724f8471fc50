"""Time of a round with a PyTorch module beside the same network written in JAX.

    python benchmarks/torch_bridge.py [--small]

Both problems have the same parameters and rows. Their runs take turns in one process, and the
median of the ratios is printed; the goal is at most 1.2. Needs the extra `torch`.
"""

import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np
import torch

import diamond

AGENTS, ROWS, BATCH, WIDTH = 4, 256, 32, 64
ROUNDS, TURNS = (4, 1) if "--small" in sys.argv else (200, 7)
GOAL = 1.2
GELU = torch.nn.GELU(approximate="tanh")


def networks():
    """The parameters, the module as a function, and the same network in JAX."""
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        nn.Linear(64, WIDTH), nn.LayerNorm(WIDTH), GELU, nn.Linear(WIDTH, WIDTH), GELU,
        nn.Linear(WIDTH, 10),
    )  # fmt: skip
    params, apply = diamond.torch.functional(module)

    def in_jax(y, a):
        a = a @ y["0.weight"].T + y["0.bias"]
        centred = a - a.mean(-1, keepdims=True)
        a = centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
        a = jax.nn.gelu(a * y["1.weight"] + y["1.bias"])
        a = jax.nn.gelu(a @ y["3.weight"].T + y["3.bias"])
        return a @ y["5.weight"].T + y["5.bias"]

    return params, {"torch": apply, "jax": in_jax}


def make(params, network):
    """Weights of two data sources for a network."""
    generator = np.random.default_rng(0)

    def rows():
        a = generator.normal(size=(ROWS, 64)).astype(np.float32)
        source = np.arange(ROWS) % 2
        return {"a": a, "b": np.abs(a[:, :10]).argmax(1), "source": source}

    def losses(y, rows):
        logits = network(y, rows["a"])
        chosen = jnp.take_along_axis(logits, rows["b"][:, None], 1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - chosen

    return diamond.Problem(
        lambda x, y, rows: losses(y, rows).mean(),
        lambda x, y, rows: jnp.mean(2 * jax.nn.softmax(x)[rows["source"]] * losses(y, rows)),
        lambda key: (jnp.zeros(2), params),
        [rows() for _ in range(AGENTS)],
        [rows() for _ in range(AGENTS)],
        convex=False,
    )


def main():
    params, functions = networks()
    problems = {name: make(params, function) for name, function in functions.items()}
    algorithms = {
        "f2sa": diamond.f2sa(0.1, 0.05, batch=BATCH),
        "soba": diamond.soba(1e-3, 1e-2, batch=BATCH),
    }
    for method, algorithm in algorithms.items():
        milliseconds = {name: [] for name in problems}
        for turn in range(TURNS):
            order = list(problems) if turn % 2 else list(problems)[::-1]
            for name in order:
                run = diamond.simulate(
                    problems[name], diamond.network.ring(AGENTS), algorithm, ROUNDS, every=ROUNDS,
                    measure="cheap", progress=False,
                )  # fmt: skip
                milliseconds[name].append(1e3 * float(run.history["seconds"][-1]) / ROUNDS)
        ratios = [a / b for a, b in zip(milliseconds["torch"], milliseconds["jax"])]
        ratio = statistics.median(ratios)
        for name, times in milliseconds.items():
            print(
                f"{method} {name}: median {statistics.median(times):.3f} ms, least "
                f"{min(times):.3f} ms"
            )
        print(
            f"{method}: ratio {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f} over {TURNS} "
            f"turns), {'met' if ratio <= GOAL else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
