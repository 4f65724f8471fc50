"""Weights of the sources of a language model, learned on texts that every Python has."""

import ast
import sys
import sysconfig
import time
from pathlib import Path

from large_common import BATCH, SIZES, plain_program, show, write

TARGET = "docstrings of NumPy"
# Weights tried by hand, of sources by their first letters; the others have weight 0.
GRID = (
    {"docs": 1, "lang": 1},
    {"docs": 1, "code": 1},
    {"docs": 3, "lang": 1},
    {"docs": 2, "lang": 1, "code": 1},
    {"docs": 1, "lang": 1, "code": 1},
    {"docs": 3, "lang": 1, "code": 1, "lice": 1},
)
LEAST_WEIGHT = 1e-4  # of a source left out: x is a logarithm


def gather_texts(folder):
    """Write the sources and the target as files; return their paths by name, the target last."""
    import numpy

    library, site = Path(sysconfig.get_paths()["stdlib"]), Path(numpy.__file__).parents[1]
    modules = [p for p in sorted(library.glob("**/*.py")) if not {"test", "encodings"} & {*p.parts}]
    modules = [p for p in modules if not {"site-packages", "dist-packages"} & {*p.parts}]
    licences = [*site.glob("**/*LICEN[SC]E*"), *site.glob("**/COPYING*")]
    licences += [Path("/usr/share/common-licenses") / name for name in ("GPL-3", "Apache-2.0")]
    headers = [*Path(sysconfig.get_paths()["include"]).glob("**/*.h"), *site.glob("numpy/**/*.h")]
    split = [split_module(path) for path in modules]
    from pydoc_data.topics import topics

    texts = {
        "docstrings of Python": "\n".join(text for texts, _ in split for text in texts),
        "language reference": "\n".join(topics.values()),
        "code without comments": "\n".join(code for _, code in split),
        "licences": read_distinct(licences),
        "C headers": read_distinct(headers),
        "tables of encodings": read_distinct((library / "encodings").glob("*.py")),
        TARGET: "\n".join(
            text for path in sorted(site.glob("numpy/**/*.py")) for text in split_module(path)[0]
        ),
    }
    paths = {}
    for name, text in texts.items():
        paths[name] = str(folder / f"{name}.txt")
        Path(paths[name]).write_bytes(text.encode("ascii", "replace"))
        print(f"{name}: {len(text) / 1e6:.2f} MB", file=sys.stderr)
    return paths


def split_module(path):
    """Return the docstrings of a module, and its code without them and without comments."""
    try:
        tree = ast.parse(path.read_text(errors="replace"))
    except (SyntaxError, ValueError):
        return [], ""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            texts.append(text)
            node.body = node.body[1:] or [ast.Pass()]
    return texts, ast.unparse(tree)


def read_distinct(paths):
    """Return the texts of all files, each text once, in the order of the names."""
    files = [p for p in sorted(paths) if p.is_file()]
    return "\n".join(dict.fromkeys(path.read_text(errors="replace") for path in files))


def texts(options):
    """Learn the weights, and train with these, equal ones, each source alone, and a grid."""
    import tempfile

    from diamond import gallery

    size = 0.02 if options.small else options.parameters
    width, layers, _, heads, remat = SIZES[size]
    shape = {"width": width, "layers": layers, "heads": heads, "remat": remat}
    shape |= {"length": 16, "rows": 64} if options.small else {"length": 128, "rows": 4096}
    with tempfile.TemporaryDirectory() as folder:
        paths = gather_texts(Path(folder))
        sources = [path for name, path in paths.items() if name != TARGET]
        for seed in range(options.seeds):
            problem = gallery.domain_weights(
                agents=options.agents or 2,
                vocabulary=128,
                texts=sources,
                clean_text=paths[TARGET],
                seed=seed,
                **shape,
            )
            compare_weights(options, problem, seed)


def compare_weights(options, problem, seed):
    """Write a row for every choice of weights."""
    import jax
    import numpy as np

    import diamond

    batch = 4 if options.small else BATCH
    rounds = options.rounds or (20 if options.small else 300)
    begun = time.perf_counter()
    network = diamond.network.complete(problem.agents)
    show_or_not = {"on_evaluation": show, "progress": False}
    every = max(rounds // 6, 1)
    run = diamond.solve(
        problem, network, rounds=rounds, batch=batch, every=every, seed=seed, **show_or_not
    )
    learned = problem.weights(run.last_x)
    names, count = problem.names, len(problem.names)
    row = {"benchmark": "texts", "millions": round(problem.lower_size / 1e6, 2), "seed": seed}
    row |= {"rounds": rounds, "agents": problem.agents}
    own = {"choice": "networks of the run itself", "seconds": round(time.perf_counter() - begun, 1)}
    own |= {"test_loss": round(float(run.history["test_loss"][-1]), 4)}
    write(options, row | own | {"weights": dict(zip(names, np.round(learned, 4).tolist()))})

    train = [problem.rows["train"][agent] for agent in range(problem.agents)]
    program, stored, start = plain_program(problem, "adam", batch, seed)
    evaluate = evaluation(problem)

    x = problem.start(0)[0]

    def train_with(choice, weights):
        data = rows_in_proportion(train, weights / weights.sum(), stored, seed)
        begun, losses, state = time.perf_counter(), [], start()
        for first in range(0, rounds, every):
            state = program(state, data, first, min(every, rounds - first), x)
            losses.append(evaluate(state[0]))
        valid, test = min(losses)
        loss = {"validation_loss": round(valid, 4), "test_loss": round(test, 4)}
        seconds = {"seconds": round(time.perf_counter() - begun, 1)}
        write(options, row | {"choice": choice} | loss | seconds)

    train_with("learned weights", learned)
    train_with("equal weights", np.ones(count))
    for name, weights in zip(names, np.eye(count)):
        train_with(f"{name} alone", weights)
    for shares in GRID[: 3 if options.parameters > 100 else None]:
        share = lambda name, shares=shares: next(
            (shares[w] for w in shares if name.startswith(w)), 0
        )
        label = " : ".join(f"{share} {start}" for start, share in shares.items())
        train_with(label, np.array([share(name) for name in names], float))
    del run
    jax.clear_caches()


def rows_in_proportion(train, weights, like, seed):
    """Return as many rows of all agents as `like` has, of each source in proportion to its weight.

    Rows of a source that has too few are repeated.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    count = jax.tree.leaves(like)[0].shape[1]
    ends = np.round(count * np.cumsum(weights)).astype(int)
    source = np.searchsorted(ends, np.arange(count), side="right")  # of each row
    order, agents = np.random.default_rng(seed).permutation(count), []
    for rows in train:
        chosen = [
            np.resize(np.flatnonzero(rows["k"] == k), np.sum(source == k))
            for k in range(len(weights))
            if np.any(source == k)
        ]
        chosen = np.concatenate(chosen)[order]
        agents.append(jax.tree.map(lambda a, i=chosen: a[i], rows))
    return jax.tree.map(lambda *a: jnp.stack(a), *agents)


def evaluation(problem):
    """Return the function y -> (validation loss, test loss), means over rows and agents."""
    import jax
    import jax.numpy as jnp

    most, at_once = 512, 64
    parts = []
    for part in ("valid", "test"):
        own = [problem.rows[part][agent] for agent in range(problem.agents)]
        parts.append(jax.tree.map(lambda *a: jnp.stack([leaf[:most] for leaf in a]), *own))
    x = problem.start(0)[0]

    def mean(y, rows):
        blocks = jax.tree.map(lambda a: a.reshape(-1, min(at_once, len(a)), *a.shape[1:]), rows)
        return jnp.mean(jax.lax.map(lambda block: problem.upper(x, y, block), blocks))

    losses = jax.jit(lambda y, parts: [jnp.mean(jax.vmap(mean)(y, rows)) for rows in parts])
    return lambda y: tuple(map(float, losses(y, parts)))
