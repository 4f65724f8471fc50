"""Pictures of the gallery: the metric of every method along the rounds, and what x has become."""

import matplotlib
import numpy as np
from gallery_entries import ENTRIES

from diamond.records.plot_colors import OKABE_ITO

matplotlib.use("Agg")
from matplotlib import pyplot as plt

WORDS = {"f1": "F1 of the wrong rows", "test_loss": "squared error on test rows"}
WORDS |= {"accuracy": "accuracy on test rows"}
WORDS |= {"upper_loss": r"upper loss $\ell(\bar x)$", "return": "mean return"}


def draw(results, folder):
    """One picture a problem that was compared."""
    folder.mkdir(exist_ok=True)
    for name in (name for name in results if name in DRAWINGS):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        curves(axes[0], ENTRIES[name].metric, results[name])
        first = next(outcome for outcome in results[name].values() if outcome.get("x") is not None)
        DRAWINGS[name](axes[1], first["x"])
        figure.savefig(folder / f"{name}.png", dpi=90)
        plt.close(figure)
        print(folder / f"{name}.png")


def curves(axis, metric, methods):
    """The mean over the seeds, and their range."""
    for colour, (method, outcome) in zip(OKABE_ITO, methods.items()):
        if "refused" in outcome:
            continue
        is_finished = [round is None for round in outcome["diverged"]]
        runs = outcome["upper_loss" if metric == "upper_loss" else "metric"]
        values = np.array([history[1:] for history, finished in zip(runs, is_finished) if finished])
        rounds = outcome["round"][1:]  # at the start all are alike
        axis.plot(rounds, values.mean(0), color=colour, label=method)
        axis.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.2)
    axis.set(xlabel="round", title=WORDS[metric])
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def pixels(axis, x):
    """Log-penalties of 64 pixels."""
    image = axis.imshow(np.reshape(x, (8, 8)), cmap="viridis")
    axis.figure.colorbar(image, ax=axis)
    axis.set(title="x: the log-penalty of every pixel", xticks=[], yticks=[])


def bars(title, ticks):
    def draw_bars(axis, x):
        axis.bar(ticks, np.ravel(x), color=OKABE_ITO[0])
        axis.set(title=title)
        axis.tick_params(axis="x", labelrotation=20, labelsize=8)

    return draw_bars


def weights(axis, x):
    """How often rows whose labels are right, or wrong, get which weight."""
    wrong = ENTRIES["hyper_cleaning"].make().wrong
    row_weights = 1 / (1 + np.exp(-np.asarray(x)))
    axis.hist(
        [row_weights[~wrong], row_weights[wrong]],
        bins=20,
        label=["right", "wrong"],
        color=OKABE_ITO[:2],
    )
    axis.set(title="sigmoid(x) of rows with right and wrong labels")
    axis.legend(fontsize=8)


def synthetic(axis, x):
    """The synthetic rows as images, one a class."""
    images = np.reshape(x, (2, 5, 8, 8)).transpose(0, 2, 1, 3).reshape(16, 40)
    axis.imshow(images, cmap="gray_r")
    axis.set(title="x: ten synthetic rows, of classes 0 to 9", xticks=[], yticks=[])


def policy(axis, x):
    """The probability of every agent's actions, a line a state."""
    policy = np.exp(np.asarray(x)) / np.exp(np.asarray(x)).sum(-1, keepdims=True)
    axis.imshow(
        policy.transpose(1, 0, 2).reshape(policy.shape[1], -1), cmap="viridis", aspect="auto"
    )
    axis.set(title="x: probability of each agent's actions", xlabel="agent", ylabel="state")
    axis.set_xticks(np.arange(len(policy)) * 3 + 1, range(len(policy)))


def kernels(axis, x):
    """The kernels as images."""
    images = np.reshape(x["kernels"], (3, 3, -1)).transpose(0, 2, 1)
    gap = np.full((3, images.shape[1], 1), np.nan)
    axis.imshow(np.concatenate([images, gap], 2).reshape(3, -1), cmap="RdBu")
    axis.set(title="x: six kernels of 3 x 3 pixels", xticks=[], yticks=[])


def layer(axis, x):
    """The weights of the first layer's units on the pixels."""
    images = np.reshape(x[0]["w"], (8, 8, 4, 5)).transpose(2, 0, 3, 1).reshape(32, 40)
    axis.imshow(images, cmap="RdBu")
    axis.set(title="x: what the first layer's 20 units look at", xticks=[], yticks=[])


def solution(name):
    """x beside the solution in closed form."""

    def draw_points(axis, x):
        axis.scatter(ENTRIES[name].make().minimizer(), x, color=OKABE_ITO[0])
        axis.axline((0, 0), slope=1, color="gray", lw=0.8)
        axis.set(title="every number of x", xlabel="closed form", ylabel="found")

    return draw_points


DRAWINGS = {
    "actor_critic": policy,
    "distillation": synthetic,
    "fair_weights": bars("x: the weight of every agent", [str(k) for k in range(5)]),
    "hyper_cleaning": weights,
    "hyperparameter": pixels,
    "meta_learning": layer,
    "policy_evaluation": solution("policy_evaluation"),
    "quadratic": solution("quadratic"),
    "regression": bars("x: the log-penalty of every feature", [f"{k}" for k in range(6)]),
    "representation": kernels,
    "support_vectors": pixels,
}
