"""Problems of the gallery at demo size: what docs/results/gallery.md reports.

    python benchmarks/gallery.py compare      every problem by several methods, tuned alike
    python benchmarks/gallery.py pictures     of what `compare` found, and its tables in the docs
    python benchmarks/gallery.py solved       what `solve` reaches beside references, with pictures
    python benchmarks/gallery.py entries      processor seconds of every file of `diamond new`
    python benchmarks/gallery.py games        shares of the best return, on ten games
    python benchmarks/gallery.py cleaning     accuracy and F1, on three draws of wrong labels
    python benchmarks/gallery.py mnist FOLDER the same on 12,500 rows of MNIST, which is there

Games: 9 agents, Erdos-Renyi (p = 0.3), all states in every round, learned steps.
Cleaning: half of the labels are wrong; alpha of every method is the best of one grid on the first
draw, by the upper loss.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import diamond
from diamond.bench.cases import digit_rows
from diamond.gallery import actor_critic, hyper_cleaning

ROOT = Path(__file__).parents[1]
GAMES, ROUNDS = range(10), 1000
TASKS = ["compare", "pictures", "solved", "entries", "games", "cleaning", "mnist"]
ALPHAS, DRAWS = (2.0, 10.0, 50.0, 250.0), range(3)
LOWER = {"beta": 0.3, "delta": 0.3, "batch": 32}
MOMENTUM = {"eta": 0.2, "gamma": 0.2}


def games():
    network = diamond.network.erdos_renyi(9, p=0.3, seed=0)
    inverse = diamond.hypergradient.conjugate_gradient(6)
    methods = diamond.diamond, diamond.gt_sgd, diamond.dsgd
    print("game  best   " + "  ".join(f"{make.__name__:>7}" for make in methods) + "    alone")
    for seed in GAMES:
        game = actor_critic(seed=seed)
        best, _ = game.optimal_policy()
        runs = [
            diamond.simulate(game, network, make(batch=6, hypergradient=inverse), ROUNDS)
            for make in methods
        ]
        returns = [
            *(run.history["return"][-1] for run in runs),
            game.returns(learn_alone(game)).mean(),
        ]
        print(f"{seed:4}  {best:.3f}  " + "  ".join(f"{value / best:7.3f}" for value in returns))


def learn_alone(game, step=20.0):
    """Where agents end that change their own policy for their own reward."""
    agent_numbers = jnp.arange(9)
    update = lambda x: x.at[agent_numbers].add(
        step * jax.jacobian(game.returns)(x)[agent_numbers, agent_numbers]
    )
    start = jnp.zeros(game.start(0)[0].shape)
    return jax.jit(lambda x: jax.lax.fori_loop(0, ROUNDS, lambda _, x: update(x), x))(start)


def cleaning():
    methods = {
        "diamond_common": lambda a: diamond.diamond_common(a, **LOWER, **MOMENTUM),
        "sparkle": lambda a: diamond.sparkle(a, **LOWER),
        "ma_dsbo": lambda a: diamond.ma_dsbo(a, **LOWER),
    }
    partitions = (digit_rows(5, seed=seed) for seed in DRAWS)
    problems = [hyper_cleaning(*rows, seed=seed) for seed, rows in enumerate(partitions)]
    for name, draws in {
        "weights ignored": problems,
        "wrong rows left out": map(without_wrong_rows, problems),
    }.items():
        runs = [run(problem, methods["diamond_common"](0.0)) for problem in draws]
        report(name, "-", runs)
    for name, make in methods.items():
        runs_by_alpha = {alpha: run(problems[0], make(alpha)) for alpha in ALPHAS}
        alpha = min(runs_by_alpha, key=lambda alpha: runs_by_alpha[alpha].history["upper_loss"][-1])
        report(
            name,
            alpha,
            [runs_by_alpha[alpha], *(run(problem, make(alpha)) for problem in problems[1:])],
        )


def mnist(folder):
    from diamond.config.partition_section import partition_rows

    lower = {"beta": 0.03, "delta": 0.03, "batch": 64}
    methods = {
        "diamond_common": lambda a: diamond.diamond_common(a, **lower, **MOMENTUM),
        "sparkle": lambda a: diamond.sparkle(a, **lower),
    }
    rows = partition_rows("mnist", agents=5, rows=12_500, folder=folder)[:3]
    problem = hyper_cleaning(*rows)
    for name, problem_to_run in {
        "weights ignored": problem,
        "wrong rows left out": without_wrong_rows(problem),
    }.items():
        report(name, "-", [run(problem_to_run, methods["diamond_common"](0.0))])
    for name, make in methods.items():
        for alpha in (250.0, 1000.0):
            report(name, alpha, [run(problem, make(alpha))])


def run(problem, algorithm):
    return diamond.simulate(problem, diamond.network.ring(5), algorithm, ROUNDS, every=ROUNDS)


def without_wrong_rows(problem):
    """The same without the rows whose labels are wrong."""
    rows = problem.rows
    train = [{k: r[k][~problem.wrong[r["k"]]] for k in "ab"} for r in rows["train"]]
    return hyper_cleaning(train, list(rows["valid"]), list(rows["test"]), corrupted=0.0)


def report(name, alpha, runs):
    last = lambda key: [run.history[key][-1] for run in runs if key in run.history]
    measures = [f"{key} {np.mean(last(key)):.3f}" for key in ("accuracy", "f1") if last(key)]
    print(f"{name:20} alpha {alpha:4}  " + "  ".join(measures), flush=True)


def compare(names, out, seeds, processes):
    """Every problem by several methods; adds to what the file `out` holds."""
    from gallery_entries import ENTRIES
    from gallery_methods import compare

    results = compare(names or list(ENTRIES), out.parent, seeds, processes)
    stored = json.loads(out.read_text()) if out.exists() else {}
    out.write_text(json.dumps(stored | results))


def entries(names):
    """`diamond new`, then `diamond run`, of every problem: compiled anew, all cores together."""
    from diamond.templates.problem_templates import TEMPLATE_SETTINGS

    for kind in names or TEMPLATE_SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "diamond"]
            options = {"cwd": folder, "check": True, "capture_output": True}
            options["env"] = os.environ | {"XDG_CACHE_HOME": folder}
            subprocess.run([*command, "new", "mine", "--problem", kind], **options)
            times_before = os.times()
            subprocess.run([*command, "run", "mine.toml", "--quiet"], **options)
            times_after = os.times()
        seconds = times_after.children_user + times_after.children_system
        seconds -= times_before.children_user + times_before.children_system
        print(f"{kind:20} {seconds:4.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("names", nargs="*", help="problems to compare; of mnist, its folder")
    parser.add_argument("--out", type=Path, default=Path("gallery/compare.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    if options.task == "compare":
        options.out.parent.mkdir(parents=True, exist_ok=True)
        compare(options.names, options.out, options.seeds, options.processes)
    elif options.task == "pictures":
        from gallery_pictures import draw
        from gallery_tables import write

        results = json.loads(options.out.read_text())
        draw(results, ROOT / "docs" / "results" / "gallery")
        write(results, ROOT / "docs" / "results" / "gallery.md")
    elif options.task == "solved":
        from gallery_solved import solved

        solved(options.names, ROOT / "docs" / "results" / "gallery")
    elif options.task == "entries":
        entries(options.names)
    elif options.task == "mnist":
        mnist(options.names[0])
    else:
        {"games": games, "cleaning": cleaning}[options.task]()


if __name__ == "__main__":
    main()
