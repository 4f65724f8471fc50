"""What `solve` reaches on the problems of the gallery with a reference: tables and pictures.

The reference is a closed form (robust_regression, portfolio), a minimum of the closed form of l by
BFGS in float64 from several starts (rlhf), or every single architecture trained alone
(architecture_search).
"""

import time
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from gallery_entries import rows_of_tables
from scipy import optimize

import diamond
from diamond import gallery
from diamond.bench.cases import digit_rows
from diamond.gallery.architecture_search import OPERATIONS
from diamond.records.plot_colors import OKABE_ITO

matplotlib.use("Agg")
from matplotlib import pyplot as plt

NETWORK = diamond.network.ring(5)
STARTS = 5  # of the reference of rlhf
SEARCH_ROUNDS = 600
TRAINING_STEPS, RATE, BATCH = 300, 0.03, 32  # of every single architecture, by Adam


def solved(names, folder):
    """Solve, compare with the reference, and draw; print a line for each table of the page."""
    folder.mkdir(exist_ok=True)
    for name in names or PROBLEMS:
        started = time.process_time()
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        PROBLEMS[name](*axes)
        figure.savefig(folder / f"{name}.png", dpi=90)
        plt.close(figure)
        print(f"{name}: {time.process_time() - started:.0f} s of processor time\n", flush=True)


def report(name, run, value, best, x_error):
    """Print how far a run is from the reference."""
    rounds = run.history["round"][-1]
    line = f"{name:16} l {value:.7f}, least {best:.7f}; x within {x_error:.1e}; {rounds} rounds"
    print(line, run.message, flush=True)


def robust_regression(left, right):
    """Losses of the agents by two regressions, and the worst weights."""
    rows = rows_of_tables()
    problem = gallery.robust_regression(*rows, penalty=0.1)
    least_squares = gallery.robust_regression(*rows, penalty=1e9).minimizer()
    best = problem.minimizer()
    value = lambda x: problem.losses(x).mean() + problem.losses(x).var() / 2 / problem.penalty
    runs = {"solve": diamond.solve(problem, NETWORK, accuracy="exact")}
    for make in (diamond.gda, diamond.optimistic_gda):
        method = make(alpha=0.02, beta=5.0, lower_level="common", batch=16)
        runs[make.__name__] = diamond.simulate(problem, NETWORK, method, 500, every=500)
    for name, run in runs.items():
        x = jax.tree.map(lambda leaf: np.asarray(leaf, float).mean(0), run.x)
        error = max(np.abs(x[k] - best[k]).max() for k in "wb")
        report(name, run, value(x), value(best), error)
    x = jax.tree.map(lambda leaf: np.asarray(leaf, float).mean(0), runs["solve"].x)
    places = np.arange(problem.agents)
    print("losses by least squares", problem.losses(least_squares), "robust", problem.losses(x))
    for k, (label, point) in enumerate({"least squares": least_squares, "robust": x}.items()):
        bars = problem.losses(point)
        left.bar(places + 0.4 * k - 0.2, bars, 0.4, label=label, color=OKABE_ITO[k])
    left.set(title=r"loss $\ell_i$ of every agent", xlabel="agent")
    left.legend(fontsize=8)
    worst = 1 + problem.lower_solution(best)
    found = np.asarray(runs["solve"].y).mean(0)
    right.bar(places - 0.2, worst, 0.4, label="closed form", color=OKABE_ITO[2])
    right.bar(places + 0.2, 1 + found - found.mean(), 0.4, label="solve", color=OKABE_ITO[1])
    right.set(title="weight of every agent, by the adversary", xlabel="agent")
    right.legend(fontsize=8)


def portfolio(left, right):
    """Upper losses above the least, and the amounts."""
    problem = gallery.portfolio()
    best = problem.minimizer()
    value = lambda x: -problem.means.mean(0) @ x + problem.risk / 2 * problem.variances(x).mean()
    methods = {"scgd": diamond.scgd(batch=16), "diamond": diamond.diamond(batch=16)}
    methods |= {"dsgd": diamond.dsgd(batch=16)}
    runs = {n: diamond.simulate(problem, NETWORK, m, 500, every=25) for n, m in methods.items()}
    runs["solve"] = diamond.solve(problem, NETWORK, accuracy="exact", every=1)
    for color, (name, run) in zip(OKABE_ITO, runs.items()):
        x = np.asarray(run.x, float).mean(0)
        report(name, run, value(x), value(best), np.abs(x - best).max())
        above = np.maximum(run.history["upper_loss"] - value(best), 1e-8)
        left.semilogy(run.history["round"], above, label=name, color=color)
    left.set(title=r"$\ell(\bar x)$ above its least", xlabel="round")
    left.legend(fontsize=8)
    places = np.arange(len(best))
    right.bar(places - 0.2, best, 0.4, label="closed form", color=OKABE_ITO[2])
    amounts = np.asarray(runs["solve"].x).mean(0)
    right.bar(places + 0.2, amounts, 0.4, label="solve", color=OKABE_ITO[1])
    right.set(title="x: amounts in the assets", xlabel="asset")
    right.legend(fontsize=8)


def least_of(function, starts):
    """The least value of a function by BFGS in float64, and its x."""
    with jax.enable_x64():
        both = jax.jit(jax.value_and_grad(function))
        evaluate = lambda x: [np.asarray(a, float) for a in both(x)]
        ends = [optimize.minimize(evaluate, start, jac=True, tol=1e-12) for start in starts]
    best = min(ends, key=lambda end: end.fun)
    return best.fun, best.x


def rlhf(left, right):
    """The upper loss of solve above the reference, and how often annotators prefer a policy."""
    problem = gallery.rlhf()
    size = problem.features.shape[-1]
    starts = [k * np.random.default_rng(k).normal(size=size) for k in range(STARTS)]
    least, best = least_of(problem.value, starts)
    _, fixed = least_of(partial(problem.value, policy=np.exp(problem.reference)), starts[:1])
    wins = {"reference\npolicy": problem.win_rate(np.exp(problem.reference))}
    wins["reward from\npairs of that\npolicy"] = problem.win_rate(problem.best_policy(fixed))
    wins["BFGS on the\nclosed form"] = problem.win_rate(problem.best_policy(best))
    network = diamond.network.ring(problem.agents)
    run = diamond.solve(problem, network, accuracy="exact", every=1)
    x = np.asarray(run.x, float).mean(0)
    report("solve", run, float(problem.value(x)), least, np.abs(x - best).max())
    wins["solve"] = run.history["win_rate"][-1]
    above = np.maximum(run.history["upper_loss"] - least, 1e-8)
    left.semilogy(run.history["round"], above, color=OKABE_ITO[0])
    left.set(title="solve: upper loss above the reference", xlabel="round")
    networks = gallery.rlhf(width=16)
    run = diamond.solve(networks, network, rounds=800, every=800, batch=20)
    wins["solve,\nnetworks"] = run.history["win_rate"][-1]
    mean = jax.tree.map(lambda leaf: jnp.asarray(leaf).mean(0), run.x)
    print("networks: l by the best policy", float(networks.value(mean)), run.message)
    print("best policy of the network", float(networks.win_rate(networks.best_policy(mean))))
    print({name.replace("\n", " "): round(float(value), 4) for name, value in wins.items()})
    right.bar(list(wins), [float(value) for value in wins.values()], color=OKABE_ITO[: len(wins)])
    right.axhline(0.5, color="gray", lw=0.8)
    right.set(title="answers that annotators prefer to the reference policy", ylim=(0.4, None))
    right.title.set_fontsize(9)
    right.tick_params(axis="x", labelsize=7)


def architecture_search(left, right):
    """The weights of the operations, and the validation loss of every single architecture."""
    problem = gallery.architecture_search(*digit_rows(5))
    run = diamond.solve(problem, NETWORK, rounds=SEARCH_ROUNDS, every=SEARCH_ROUNDS, batch=16)
    mixture, losses = problem.mixture(run.x), train_all(problem)
    chosen = tuple(mixture.argmax(1))
    ranks = np.argsort(np.argsort(losses.ravel())).reshape(losses.shape)
    best = np.unravel_index(losses.argmin(), losses.shape)
    name = lambda choice: ", ".join(OPERATIONS[k] for k in choice)
    print("mixture", mixture.round(3).tolist(), "accuracy", run.history["accuracy"][-1])
    print("chosen:", name(chosen), losses[chosen], "rank", ranks[chosen] + 1, run.message)
    print(
        "best:",
        name(best),
        losses[best],
        "worst",
        losses.max(),
        "mixture's f",
        run.history["upper_loss"][-1],
    )
    places = np.arange(len(OPERATIONS))
    for layer, weights in enumerate(mixture):
        shift = 0.4 * layer - 0.2
        left.bar(places + shift, weights, 0.4, label=f"layer {layer + 1}", color=OKABE_ITO[layer])
    left.set_xticks(places, OPERATIONS, fontsize=8)
    left.set(title="softmax(x): weight of every operation")
    left.legend(fontsize=8)
    image = right.imshow(losses, cmap="viridis_r")
    right.figure.colorbar(image, ax=right)
    for i, j in product(places, places):
        right.text(j, i, f"{losses[i, j]:.2f}", ha="center", va="center", fontsize=8)
    right.add_patch(plt.Rectangle((chosen[1] - 0.5, chosen[0] - 0.5), 1, 1, fill=False, lw=3))
    right.set_xticks(places, OPERATIONS, fontsize=8)
    right.set_yticks(places, OPERATIONS, fontsize=8)
    right.set(title="f of every architecture; box: found", xlabel="layer 2", ylabel="layer 1")


def train_all(problem):
    """f of every single architecture (first layer, second layer), each agent's y trained for it."""
    y_start = problem.start(0)[1]
    rows = min(problem.counts("train")) - BATCH
    choices = [*product(range(len(OPERATIONS)), repeat=2)]
    x = jnp.asarray([[100 * np.eye(len(OPERATIONS))[k] for k in choice] for choice in choices])

    def train(x, objectives):
        def step(carry, k):
            y, mean, square = carry
            slope = jax.grad(objectives.g, 1)(x, y, k * BATCH % rows)
            mean = jax.tree.map(lambda m, s: 0.9 * m + 0.1 * s, mean, slope)
            square = jax.tree.map(lambda v, s: 0.99 * v + 0.01 * s * s, square, slope)
            rate = RATE * jnp.minimum(1, 3 * (1 - k / TRAINING_STEPS))
            size = jnp.sqrt(1 - 0.99 ** (k + 1.0)) / (1 - 0.9 ** (k + 1.0))
            move = lambda y, m, v: y - rate * size * m / (jnp.sqrt(v) + 1e-8)
            return (jax.tree.map(move, y, mean, square), mean, square), None

        zeros = jax.tree.map(jnp.zeros_like, y_start)
        start, steps = (y_start, zeros, zeros), jnp.arange(TRAINING_STEPS)
        (y, _, _), _ = jax.lax.scan(step, start, steps)
        return objectives.f(x, y, None)

    all_agents = jax.vmap(train, (None, 0))
    losses = jax.jit(jax.vmap(all_agents, (0, None)))(x, problem.objectives(BATCH))
    return np.asarray(losses).mean(1).reshape(len(OPERATIONS), -1)


PROBLEMS = {
    "robust_regression": robust_regression,
    "portfolio": portfolio,
    "rlhf": rlhf,
    "architecture_search": architecture_search,
}
