"""Networks as lower levels: time and memory beside plain training, domain weights, cleaning.

    python benchmarks/large.py speed [--sizes 0.4 25 150 1000] [--methods ...] [--out FILE]
    python benchmarks/large.py domains [--parameters 0.4] [--seeds 3] [--out FILE]
    python benchmarks/large.py cleaning [--data FOLDER] [--seeds 1] [--out FILE]
    python benchmarks/large.py pictures

`speed`: for every size (in millions of numbers in y) and method, seconds to the end of the first
round, milliseconds a round and peak memory, each beside plain training of the same networks on the
same rows with the same optimizer, in the same process. Every row of the table has a process of its
own, because a device does not forget its peak; plain training comes first, so a peak of the method
is at least that of plain training. `domains`: `diamond.solve` without step sizes on
`gallery.domain_weights` with 8 sites and 6 sources of which 3 are noise, beside Adam on the clean
rows alone. `cleaning`: `diamond.solve` on `gallery.network_cleaning`. `--small` makes everything
tiny. FILE gets one JSON line for every finished row. `pictures`: those of the three problems in
docs/reference/gallery.md, at the sizes that `diamond new` writes (--rounds for shorter runs).
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
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
    command = [sys.executable, __file__, *map(str, arguments)]
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


# ---------------------------------------------------------------------------- time and memory


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


def plain_training(problem, optimizer, batch, steps, rate=None, rows=None, seed=0):
    """Return a function that trains the networks of all agents by `steps` steps, and a start.

    The networks of the agents are mapped over like those of a round; the parameters are donated.
    """
    import jax
    import jax.numpy as jnp

    from diamond.auto.adaptive_optimizers import Adam, adam_rate

    x = problem.start(seed)[0]
    agents = problem.agents
    train = rows or [problem.rows["train"][agent] for agent in range(agents)]
    count = min(len(agent_rows["k"]) for agent_rows in train)
    data = jax.tree.map(lambda *a: jnp.stack([leaf[:count] for leaf in a]), *train)
    adam = Adam(adam_rate(problem.lower_size) if rate is None else rate)
    gradient = jax.grad(problem.lower, 1)

    def step(state, agent_rows, key):
        y, memory = state
        at = jax.random.randint(key, (), 0, count - batch + 1)
        block = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, at, batch), agent_rows)
        direction = gradient(x, y, block)
        if optimizer == "sgd":
            return jax.tree.map(lambda a, d: a - STEPS["beta"] * d, y, direction), memory
        update, memory = adam.update(direction, memory, y)
        return jax.tree.map(jnp.add, y, update), memory

    def train_on(state, data, first, steps):
        def body(t, state):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), t), agents)
            return jax.vmap(step)(state, data, keys)

        return jax.lax.fori_loop(first, first + steps, body, state)

    program = jax.jit(train_on, donate_argnums=0)

    def start():
        y = problem.start(seed)[1]
        stack = lambda tree: jax.tree.map(lambda a: jnp.stack([a] * agents), tree)
        return stack(y), stack(adam.init(y)) if optimizer == "adam" else None

    return lambda state, first: program(state, data, first, steps), start


def measure_plain(problem, optimizer, batch, steps):
    """Return seconds to the first step, milliseconds a step and the peak of plain training."""
    import jax

    reset_peak()
    begun = time.perf_counter()
    train, start = plain_training(problem, optimizer, batch, steps)
    state = jax.block_until_ready(train(start(), 0))
    first = time.perf_counter() - begun
    times = []
    for repeat in (1, 2):
        begun = time.perf_counter()
        state = jax.block_until_ready(train(state, repeat * steps))
        times.append((time.perf_counter() - begun) / steps)
    del state
    return {"first": first - min(times) * (steps - 1), "ms": 1e3 * min(times), "peak": peak_bytes()}


def make_method(name, batch):
    import diamond
    from diamond.catalogue import maker

    if name == "solve":
        return maker("solve")(batch)
    return getattr(diamond, name)(**STEPS, batch=batch)


def measure_method(problem, name, batch, rounds, **options):
    """Return seconds to the end of the first round, milliseconds a round and the peak."""
    import diamond

    reset_peak()
    begun, walls = time.perf_counter(), {}
    rounds_measured = [1, 1 + rounds, 1 + 2 * rounds]
    run = diamond.simulate(
        problem,
        diamond.network.ring(problem.agents),
        make_method(name, batch),
        rounds_measured[-1],
        every=rounds_measured,
        measure="cheap",
        on_evaluation=lambda e: walls.setdefault(e["round"], time.perf_counter() - begun),
        progress=False,
        **options,
    )
    seconds = dict(zip(run.history["round"], run.history["seconds"]))
    pairs = itertools.pairwise(rounds_measured)
    spans = [(seconds[b] - seconds[a]) / (b - a) for a, b in pairs]
    losses = [float(v) for v in run.history["upper_loss"]]
    return {"first": walls[1], "ms": 1e3 * min(spans), "peak": peak_bytes(), "losses": losses}


def speed_row(options):
    """Measure one size and method, in this process."""
    import jax

    (size,), (name,) = options.sizes, options.methods
    kind, optimizer = METHODS[name]
    batch, rounds = (4, 3) if options.small else (BATCH, max(3, min(50, int(500 / size))))
    begun = time.perf_counter()
    problem = make_problem(size, options)
    made = time.perf_counter() - begun
    plain = measure_plain(problem, optimizer, batch, rounds)
    more = {"precision": options.precision} if options.precision else {}
    method = measure_method(problem, name, batch, rounds, **more)
    row = {
        "millions": round(problem.lower_size / 1e6, 2),
        "agents": problem.agents,
        "method": name,
        "kind": kind,
        "optimizer": optimizer,
        "precision": options.precision or "float32",
        "problem_s": round(made, 1),
        "first_round_s": round(method["first"], 1),
        "plain_first_s": round(plain["first"], 1),
        "ms": round(method["ms"], 2),
        "plain_ms": round(plain["ms"], 2),
        "time_ratio": round(method["ms"] / plain["ms"], 2),
        "peak_gb": round(method["peak"] / 1e9, 3),
        "plain_peak_gb": round(plain["peak"] / 1e9, 3),
        "memory_ratio": round(method["peak"] / plain["peak"], 2),
        "upper_loss": [round(v, 4) for v in method["losses"]],
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }
    print(json.dumps(row), flush=True)


def speed(options):
    sizes = options.sizes or ([0.02] if options.small else [s for s in SIZES if s >= 0.4])
    for size in sizes:
        for method in options.methods:
            extra = ["--agents", options.agents] if options.agents else []
            extra += ["--precision", options.precision] if options.precision else []
            spawn(options, "speed-row", "--sizes", size, "--methods", method, *extra)


# ---------------------------------------------------------------------------- domain weights


def clean_training(problem, batch, rounds, every, seed):
    """Return the validation losses along plain training by Adam on the clean rows alone."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    train = [problem.rows["train"][agent] for agent in range(problem.agents)]
    clean = [np.flatnonzero(problem.clean[rows["k"]]) for rows in train]
    rows = [jax.tree.map(lambda a, i=i: a[i], r) for r, i in zip(train, clean)]
    x, _ = problem.start(seed)
    advance, start = plain_training(problem, "adam", batch, every, rows=rows, seed=seed)
    sample = [
        jax.tree.map(lambda a: jnp.asarray(a[:1024]), problem.rows["valid"][agent])
        for agent in range(problem.agents)
    ]
    evaluate = jax.jit(problem.upper)

    def loss(y):
        values = []
        for agent, rows in enumerate(sample):
            own = jax.tree.map(lambda a, i=agent: a[i], y)
            count = len(rows["k"])
            parts = [slice(i, min(i + 64, count)) for i in range(0, count, 64)]
            blocks = [jax.tree.map(lambda a, p=p: a[p], rows) for p in parts]
            weights = [len(block["k"]) / count for block in blocks]
            values.append(sum(w * float(evaluate(x, own, b)) for w, b in zip(weights, blocks)))
        return float(np.mean(values))

    state, losses = start(), []
    for first in range(0, rounds, every):
        state = advance(state, first)
        losses.append(loss(state[0]))
    return losses


def domains(options):
    import diamond

    rounds = options.rounds or (40 if options.small else 400)
    every = max(rounds // 20, 1)
    sizes = {"agents": options.agents or 8, "sources": 6, "noise": 3}
    changes = {} if options.small else {"length": 64, "vocabulary": 64, "rows": 2048}
    for seed in range(options.seeds):
        begun = time.perf_counter()
        size = 0.02 if options.small else options.parameters
        problem = make_problem(size, options, **sizes, **changes, seed=seed)
        run = diamond.solve(
            problem,
            diamond.network.ring(problem.agents),
            rounds=rounds,
            batch=4 if options.small else BATCH,
            every=every,
            seed=seed,
            on_evaluation=show,
            progress=False,
        )
        seconds = time.perf_counter() - begun
        losses = clean_training(problem, 4 if options.small else BATCH, rounds, every, seed)
        history = run.history
        ours, reference = float(min(history["upper_loss"])), min(losses)
        row = {
            "benchmark": "domains",
            "millions": round(problem.lower_size / 1e6, 2),
            "agents": problem.agents,
            "seed": seed,
            "rounds": rounds,
            "auc": problem.auc(run.x),
            "clean_weight": round(float(problem.weights(run.x)[problem.clean].sum()), 4),
            "weights": [round(float(w), 4) for w in problem.weights(run.x)],
            "validation_loss": round(ours, 4),
            "validation_loss_end": round(float(history["upper_loss"][-1]), 4),
            "clean_only_loss": round(reference, 4),
            "clean_only_loss_end": round(losses[-1], 4),
            "ratio": round(ours / reference, 4),
            "entropy": round(problem.entropy, 4),
            "seconds": round(seconds, 1),
            "ms": round(1e3 * float(history["seconds"][-1]) / rounds, 2),
            "peak_gb": round(peak_bytes() / 1e9, 2),
        }
        write(options, row)


# ---------------------------------------------------------------------------- cleaning


def cleaning(options):
    """CNN with 40 % wrong labels: CIFAR-10 from a folder, or the digits of the package."""
    import numpy as np

    import diamond

    name = "cifar10" if options.data else "digits"
    dataset = diamond.data.cifar10(options.data) if options.data else diamond.data.digits()
    agents = options.agents or 4
    for seed in range(options.seeds):
        features, labels = dataset.train
        total = 240 if options.small else min(len(labels), options.rows)
        chosen = np.random.default_rng(seed).permutation(len(labels))[:total]
        parts = diamond.data.partition.iid(np.asarray(labels)[chosen], agents, seed=seed)
        split = diamond.data.partition.split(parts, (0.7, 0.2, 0.1), seed=seed)
        rows = [
            [{"a": features[chosen[i]], "b": labels[chosen[i]]} for i in part] for part in split
        ]
        rounds = options.rounds or (60 if options.small else 2000)
        begun = time.perf_counter()
        channels = (4, 8) if options.small else (32, 64, 128)
        channels = channels if options.data or options.small else (16, 32)
        problem = diamond.gallery.network_cleaning(*rows, corrupted=0.4, channels=channels)
        first = []
        note = lambda e: (
            first.append(time.perf_counter() - begun)
            or print(
                {k: float(f"{v:.4g}") for k, v in e.items() if k in SHOWN},
                file=sys.stderr,
                flush=True,
            )
        )
        run = diamond.solve(
            problem,
            diamond.network.ring(agents),
            rounds=rounds,
            batch=16 if options.small else 64,
            every=max(rounds // 20, 1),
            seed=seed,
            on_evaluation=note,
            progress=False,
        )
        row = {
            "benchmark": "cleaning",
            "data": name,
            "rows": int(total),
            "millions": round(problem.lower_size / 1e6, 3),
            "agents": agents,
            "seed": seed,
            "rounds": rounds,
            "auc": round(problem.auc(run.x), 4),
            "auc_along": [round(float(v), 4) for v in run.history["auc"]],
            "accuracy": [round(float(v), 4) for v in run.history["accuracy"]],
            "upper_loss": [round(float(v), 4) for v in run.history["upper_loss"]],
            "first_entry_s": round(first[0], 1),
            "ms": round(1e3 * float(run.history["seconds"][-1]) / rounds, 2),
            "peak_gb": round(peak_bytes() / 1e9, 2),
        }
        write(options, row)


# ---------------------------------------------------------------------------- pictures


def digit_parts(agents, seed=0):
    """Return training, validation and test rows of the embedded digits."""
    import diamond

    features, labels = diamond.data.digits().train
    parts = diamond.data.partition.iid(labels, agents, seed=seed)
    split = diamond.data.partition.split(parts, (0.4, 0.4, 0.2), seed=seed)
    return [[{"a": features[i], "b": labels[i]} for i in part] for part in split]


def pictures(options):
    """Draw a metric along the rounds, and x, of the three problems."""
    import matplotlib
    import numpy as np

    import diamond
    from diamond import gallery
    from diamond.records.plot_colors import OKABE_ITO

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    def draw_sources(axis, problem, run):
        bars = axis.bar(problem.names, problem.weights(run.x), color=OKABE_ITO[0])
        for bar, is_clean in zip(bars, problem.clean):
            bar.set_color(OKABE_ITO[0 if is_clean else 1])
        axis.set(title="softmax(x): the weight of every source")
        axis.tick_params(axis="x", labelrotation=20, labelsize=8)

    def draw_rows(axis, problem, run):
        weights = 1 / (1 + np.exp(-np.asarray(run.x).mean(0)))
        groups = [weights[~problem.wrong], weights[problem.wrong]]
        axis.hist(groups, bins=20, label=["right", "wrong"], color=OKABE_ITO[:2])
        axis.set(title="sigmoid(x) of rows with right and wrong labels")
        axis.legend(fontsize=8)

    def draw_agents(axis, problem, run):
        rows = [problem.rows["test"][agent] for agent in range(problem.agents)]
        names = [f"{agent}" for agent in range(problem.agents)]
        none = [{"a": 0 * layer["a"][0], "b": 0 * layer["b"][0]} for layer in run.y]
        adapters = lambda tree, i: [{k: v[i] for k, v in layer.items()} for layer in tree]
        error = lambda x, y, r: float(np.mean((problem.predict(x, y, r["a"]) - r["b"]) ** 2))
        zero = [{k: 0 * v[0] for k, v in layer.items()} for layer in run.x]
        frozen = [error(zero, none, r) for r in rows]
        adapted = [error(adapters(run.x, i), adapters(run.y, i), r) for i, r in enumerate(rows)]
        shared = [error(adapters(run.x, i), none, r) for i, r in enumerate(rows)]
        for k, (values, label) in enumerate(
            zip((frozen, shared, adapted), ("frozen", "with x", "with x and y"))
        ):
            places = np.arange(len(names)) + 0.27 * (k - 1)
            axis.bar(places, values, 0.27, label=label, color=OKABE_ITO[k])
        axis.set(title="squared error on test rows, by agent", xlabel="agent")
        axis.legend(fontsize=8)

    steps = {"alpha": 0.1, "beta": 0.05, "delta": 0.05, "batch": 16}
    cases = {
        "domain_weights": (
            lambda: gallery.domain_weights(),
            "clean_weight",
            "weight of all clean sources",
            draw_sources,
            300,
            None,
        ),
        "network_cleaning": (
            lambda: gallery.network_cleaning(*digit_parts(5)),
            "auc",
            "AUC of right against wrong rows",
            draw_rows,
            400,
            None,
        ),
        "personal_lora": (
            lambda: gallery.personal_lora(),
            "gain",
            "share of the removable error removed",
            draw_agents,
            1500,
            lambda: diamond.f2sa_fused(**steps),
        ),
    }
    folder = ROOT / "docs" / "results" / "gallery"
    for name in options.problems or cases:
        make, metric, title, draw, rounds, method = cases[name]
        problem = make()
        network = diamond.network.erdos_renyi(problem.agents, p=0.5, seed=0)
        algorithm = method() if method else make_method("solve", 16)
        rounds, every = options.rounds or rounds, max((options.rounds or rounds) // 20, 1)
        run = diamond.simulate(
            problem, network, algorithm, rounds, every=every, progress=False, on_evaluation=show
        )
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        axes[0].plot(run.history["round"], run.history[metric], color=OKABE_ITO[0])
        axes[0].set(xlabel="round", title=title)
        axes[0].grid(alpha=0.3)
        draw(axes[1], problem, run)
        figure.savefig(folder / f"{name}.png", dpi=90)
        plt.close(figure)
        print(folder / f"{name}.png", flush=True)


COMMANDS = {"speed": speed, "speed-row": speed_row, "domains": domains, "cleaning": cleaning}
COMMANDS["pictures"] = pictures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--sizes", type=float, nargs="+", choices=SIZES, help="millions")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--parameters", type=float, default=0.4, choices=SIZES, help="millions")
    parser.add_argument("--agents", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of CIFAR-10 used")
    parser.add_argument("--precision", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--problems", nargs="+", help="of pictures")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.command != "speed":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
