"""Results on networks: weights of sources beside training on the clean rows, and cleaning."""

import time

from large_common import BATCH, make_problem, peak_bytes, plain_training, show, write


def clean_training(problem, batch, rounds, every, seed):
    """Return the validation losses along plain training by Adam on the clean rows alone."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    train = [problem.rows["train"][agent] for agent in range(problem.agents)]
    clean = [np.flatnonzero(problem.clean[rows["k"]]) for rows in train]
    rows = [jax.tree.map(lambda a, i=i: a[i], r) for r, i in zip(train, clean)]
    x, _ = problem.start(seed)
    advance, start = plain_training(problem, "adam", batch, every, seed, rows)
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


def cleaning(options):
    """CNN with 40 % wrong labels: CIFAR-10, or the digits of the package."""
    import numpy as np

    import diamond

    name = "digits" if options.data == "digits" else "cifar10"
    folder = None if options.data == "cifar10" else options.data
    files = 1 if options.rows <= 10_000 else 5
    is_cifar = name == "cifar10"
    dataset = diamond.data.cifar10(folder, files) if is_cifar else diamond.data.digits()
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
        default = (4, 8) if options.small else (32, 64, 128) if is_cifar else (16, 32)
        channels = options.channels or default
        problem = diamond.gallery.network_cleaning(*rows, corrupted=0.4, channels=channels)
        first = []
        note = lambda entry, begun=begun, first=first: (
            first.append(time.perf_counter() - begun) or show(entry)
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
