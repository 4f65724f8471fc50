"""Cooperative navigation: learned policies as a picture and an animation, returns as a table.

    python benchmarks/navigation.py [FOLDER] [--small]    navigation.png, .gif, the table

Four agents on a plane, each paid for how near the next one comes to a landmark that it alone knows.
DIAMOND over ten seeds of what is drawn, GT-SGD and D-SGD over three, with learned
steps; independent learners, each of whom changes its own moves for its own reward; the best,
by planning.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import diamond
from diamond.gallery import navigation

matplotlib.use("Agg")
from matplotlib import animation
from matplotlib import pyplot as plt

SMALL = "--small" in sys.argv
ROUNDS, EVERY, STEPS = (20, 10, 10) if SMALL else (3000, 300, 10)
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
METHODS = {
    "diamond": (diamond.diamond, range(1 if SMALL else 10)),
    "gt_sgd": (diamond.gt_sgd, range(1 if SMALL else 3)),
    "dsgd": (diamond.dsgd, range(1 if SMALL else 3)),
}


def main(folder):
    game = navigation(evaluation=200)
    best, _ = game.optimal_policy()
    network = diamond.network.erdos_renyi(4, p=0.5, seed=0)
    inverse = diamond.hypergradient.conjugate_gradient(10)
    curves, learned = {}, None
    for name, (make, seeds) in METHODS.items():
        method = make(batch=64, hypergradient=inverse)
        runs = [diamond.simulate(game, network, method, ROUNDS, s, EVERY) for s in seeds]
        curves[name] = np.array([run.history["return"] for run in runs])
        learned = runs[0].x.mean(0) if learned is None else learned
        last, error = curves[name][:, -1], runs[0].history["return_se"][-1]
        print(f"{name:12} {last.mean():.3f}, {last.min():.3f} to {last.max():.3f} (+- {error:.3f})")
    starts = np.random.default_rng(1).uniform(-1, 1, (1000, 8)).astype(np.float32)
    alone = independent(game, starts)
    print(f"independent  {game.returns(alone, starts).mean():.3f}")
    print(f"the best     {best:.3f}; nobody moves: {game.returns(0 * alone, starts).mean():.3f}")
    levels = best, float(game.returns(alone, starts).mean())
    picture(folder / "navigation.png", game, curves, levels, learned, alone, starts[0])
    film(folder / "navigation.gif", game, learned, starts[:3])


def independent(game, starts):
    """Where agents end that change their own moves for their own reward."""
    agent_numbers = jnp.arange(game.agents)
    slope = jax.jacobian(lambda x: game.returns(x, starts[:200]))
    move = lambda _, x: x.at[agent_numbers].add(0.05 * slope(x)[agent_numbers, agent_numbers])
    first = jnp.zeros(game.start(0)[0].shape)
    return jax.jit(lambda x: jax.lax.fori_loop(0, 500, move, x))(first)


def plane(axes, game, title):
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", title=title, xticks=[], yticks=[])
    for j, colour in enumerate(COLOURS):  # landmark i is for agent i + 1
        axes.plot(*game.landmarks[j - 1], "*", color=colour, ms=15, mec="black", mew=0.6)


def picture(path, game, curves, levels, learned, alone, start):
    best, stay = levels
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 4), layout="constrained")
    rounds = np.arange(0, ROUNDS + 1, EVERY)
    for colour, (name, returns) in zip(COLOURS, curves.items()):
        left.plot(rounds, returns.mean(0), color=colour, label=f"{name}, {len(returns)} seeds")
        left.fill_between(rounds, returns.min(0), returns.max(0), color=colour, alpha=0.2, lw=0)
    left.axhline(best, color="black", ls=":", label="the best, by planning")
    left.axhline(stay, color="gray", ls="--", label="independent learners")
    left.set(xlabel="round", ylabel="mean return")
    left.legend(frameon=False, fontsize=9)
    for axes, x, title in ((middle, learned, "learned together"), (right, alone, "everyone alone")):
        plane(axes, game, title)
        path_of = np.asarray(game.path(x, start, STEPS)).reshape(STEPS, -1, 2)
        for j, colour in enumerate(COLOURS):
            axes.plot(*path_of[:, j].T, "-o", color=colour, ms=3)
            axes.plot(*path_of[0, j], "o", color=colour, ms=8)
    figure.savefig(path, dpi=130)
    print(path)


def film(path, game, x, starts):
    paths = np.concatenate(
        [np.asarray(game.path(x, s, STEPS)).reshape(STEPS, -1, 2) for s in starts]
    )
    figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")

    def frame(t):
        axes.clear()
        plane(axes, game, "each agent goes where another is paid for it")
        axes.title.set_fontsize(9)
        begun = t - t % STEPS
        for j, colour in enumerate(COLOURS):
            axes.plot(*paths[begun : t + 1, j].T, "-", color=colour, lw=1)
            axes.plot(*paths[t, j], "o", color=colour, ms=9)

    film = animation.FuncAnimation(figure, frame, frames=len(paths))
    film.save(path, writer=animation.PillowWriter(fps=4), dpi=80)
    print(path)


if __name__ == "__main__":
    main(Path(next((word for word in sys.argv[1:] if word != "--small"), ".")))
