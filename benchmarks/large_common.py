"""What the commands of large.py share: sizes, problems, plain training, rows of results."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Millions of numbers in y: width, layers, agents, heads, remat
SIZES = {
    0.02: (32, 2, 2, 2, False),
    0.4: (128, 2, 4, 4, False),
    25.0: (512, 8, 4, 8, False),
    150.0: (1024, 12, 4, 8, False),
    1000.0: (2048, 20, 2, 16, True),
}
FIRST_ORDER, PRODUCTS = "first order", "products"
METHODS = {  # name: kind, optimizer of y
    "f2sa_fused": (FIRST_ORDER, "sgd"),
    "solve": (FIRST_ORDER, "adam"),
    "soba": (PRODUCTS, "sgd"),
}
STEPS = {"alpha": 0.01, "beta": 0.05, "delta": 0.05}
TOKENS, BATCH = 128, 16
SHOWN = ("round upper_loss lower_loss test_loss clean_weight auc accuracy gain value_gap").split()
SMALL = {"rows": 32, "length": 16, "vocabulary": 16}


def write(options, row):
    """Print a finished row, and append it to the file."""
    line = json.dumps(row)
    print(line, flush=True)
    if options.out:
        with open(options.out, "a") as file:
            file.write(line + "\n")


def show(entry):
    """Print an evaluation to the error stream."""
    values = {name: float(f"{v:.4g}") for name, v in entry.items() if name in SHOWN}
    print(values, file=sys.stderr, flush=True)


def spawn(options, *arguments):
    """Run this script for one row; a failed row is written with the last line of its error."""
    environment = dict(os.environ)
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    command = [sys.executable, ROOT / "benchmarks" / "large.py", *map(str, arguments)]
    command += ["--small"] if options.small else []
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    sys.stderr.write(outcome.stderr)
    if outcome.returncode:
        errors = [line for line in outcome.stderr.splitlines() if line.strip()] or ["killed"]
        refusals = [line for line in errors if "Error" in line or "RESOURCE" in line]
        reason = (refusals or errors)[-1]
        write(options, {"row": list(map(str, arguments)), "failed": reason[:300]})
        return
    for line in outcome.stdout.splitlines():
        if line.startswith("{"):
            write(options, json.loads(line))


def reset_peak():
    """Start a new peak where the system can: memory of this process, not of a GPU."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def peak_bytes():
    """Return the peak of the device, or of this process on a processor."""
    import jax

    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"]
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def make_problem(size, options, **changes):
    from diamond import gallery

    width, layers, agents, heads, remat = SIZES[size]
    arguments = {"width": width, "layers": layers, "heads": heads, "remat": remat}
    arguments |= {"agents": options.agents or agents, "length": TOKENS, "vocabulary": 128}
    arguments |= SMALL if options.small else {}
    return gallery.domain_weights(**arguments | changes)


def plain_training(
    problem, optimizer, batch, steps, seed=0, rows=None, in_turn=False, precision=None
):
    """Return a function that trains the networks of all agents by `steps` steps, and a start.

    Agents are computed in parallel or, as by the rounds of a large y, `in_turn` and in place. The
    parameters are donated.
    """
    program, data, start = plain_program(problem, optimizer, batch, seed, rows, in_turn, precision)
    x = problem.start(seed)[0]
    return lambda state, first: program(state, data, first, steps, x), start


def plain_program(problem, optimizer, batch, seed=0, rows=None, in_turn=False, precision=None):
    """Return the compiled steps of plain training, their rows, and a function for the start."""
    import jax
    import jax.numpy as jnp

    from diamond.auto.adaptive_optimizers import Adam, adam_rate
    from diamond.problem.stored_rows import to_bfloat16

    agents = problem.agents
    train = rows or [problem.rows["train"][agent] for agent in range(agents)]
    count = min(len(agent_rows["k"]) for agent_rows in train)
    data = jax.tree.map(lambda *a: jnp.stack([leaf[:count] for leaf in a]), *train)
    adam = Adam(adam_rate(problem.lower_size))

    def loss(x, y, rows):
        if precision != "bf16":
            return problem.lower(x, y, rows)
        return problem.lower(to_bfloat16(x), to_bfloat16(y), rows).astype(jnp.float32)

    gradient = jax.grad(loss, 1)

    def step(x, state, agent_rows, key):
        y, memory = state
        at = jax.random.randint(key, (), 0, count - batch + 1)
        block = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, at, batch), agent_rows)
        direction = gradient(x, y, block)
        if optimizer == "sgd":
            return jax.tree.map(lambda a, d: a - STEPS["beta"] * d, y, direction), memory
        update, memory = adam.update(direction, memory, y)
        return jax.tree.map(jnp.add, y, update), memory

    def train_on(state, data, first, steps, x):
        def body(t, state):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), t), agents)
            if not in_turn:
                return jax.vmap(step, (None, 0, 0, 0))(x, state, data, keys)

            def step_of_agent(agent, state):
                own, rows = jax.tree.map(lambda a: a[agent], (state, data))
                moved = step(x, own, rows, keys[agent])
                return jax.tree.map(lambda a, b: a.at[agent].set(b), state, moved)

            return jax.lax.fori_loop(0, agents, step_of_agent, state)

        return jax.lax.fori_loop(first, first + steps, body, state)

    def start():
        y = problem.start(seed)[1]
        stack = lambda tree: jax.tree.map(lambda a: jnp.stack([a] * agents), tree)
        return stack(y), stack(adam.init(y)) if optimizer == "adam" else None

    return jax.jit(train_on, donate_argnums=0), data, start


def make_method(name, batch):
    import diamond
    from diamond.catalogue import maker

    if name == "solve":
        return maker("solve")(batch)
    return getattr(diamond, name)(**STEPS, batch=batch)
