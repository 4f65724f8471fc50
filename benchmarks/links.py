"""Seconds to a target on slow, lossy links: which topology, which compression, which method.

    python benchmarks/links.py [--rounds 300] [--seeds 1] [--data FOLDER]

20 agents with 200 digits each on average, labels dealt unevenly (Dirichlet, 1.0): MNIST at 14 x 14
pixels where it is found (in --data, DIAMOND_DATA or the cache), else the embedded digits of 8 x 8.
16 hidden units x are shared; the last layer is each agent's own (DIAMOND, D-SGD) or, as SPARKLE
solves no other problem, one for all. Batches of 16. Links of 1 Mbit/s, 10 ms and 5 % loss on five
graphs; messages as they are, as float16, in 4 bits, or a tenth of them, told as differences.

The target: the agents' own models are right on ACCURACY of their test digits, and their x agree up
to CONSENSUS = sum_i ||x_i - xbar||^2. Steps are constant, and those of each method its best of one
grid: the fewest rounds to the target, on another seed and the geometric graph, uncompressed. Shown
are network seconds, the median over the seeds, where nobody else within range may talk (`shared`)
and where all may (`wired`), and how far the same rounds get through noise of an SNR of 0 to 30 dB.
Writes docs/results/links.json and links.png. All topologies are one program: M is dense for all.
"""

import argparse
import itertools
import json
from pathlib import Path
from unittest.mock import patch

import numpy as np

import diamond
from diamond import data, network
from diamond.engine.many_runs import simulate_many
from diamond.hypergradient import neumann
from diamond.network import Network, channels
from diamond.network.links.link_clock import LinkClock

AGENTS, ROWS, BATCH, EVERY, WIDTH = 20, 200, 16, 20, 16
ACCURACY, CONSENSUS = 0.68, 1.0
LINKS = {"rate": 1e6, "latency": 0.01, "loss": 0.05}
MEDIA = {"shared": {"shared_medium": True}, "wired": {}}
TOPOLOGIES = {
    "geometric": lambda: network.geometric(AGENTS, 0.35, seed=0),
    "ring": lambda: network.ring(AGENTS),
    "star": lambda: network.star(AGENTS),
    "exponential": lambda: network.exponential(AGENTS),
    "complete": lambda: network.complete(AGENTS),
}
COMPRESSIONS = {
    "float32": (),
    "float16": (channels.rounded("float16"),),
    "4 bits": (channels.quantized(4),),
    "top 10 %": (channels.top(0.1),),
}
SNR, GAMMAS = (0, 10, 20, 30), (1.0, 0.3)
ALPHAS, BETAS, WEIGHT, TUNING = (0.1, 0.3, 1.0), (0.1, 0.3), 0.3, 100
CHAIN = neumann(terms=10, lipschitz=8.0)
OPTIONS = {"batch": BATCH, "hypergradient": CHAIN}
METHODS = {
    "DIAMOND": lambda a, b: diamond.diamond(a, b, WEIGHT, WEIGHT, **OPTIONS),
    "SPARKLE": lambda a, b: diamond.sparkle(a, b, b, WEIGHT, batch=BATCH),
    "D-SGD": lambda a, b: diamond.dsgd(a, b, **OPTIONS),
}
OUT = Path(__file__).parent.parent / "docs" / "results"


def digits(folder: Path | None) -> tuple[str, np.ndarray, np.ndarray]:
    """The name of the data, features and labels."""
    try:
        a, b = (np.asarray(part) for part in data.mnist(folder).train)
    except data.DataError as cause:
        if folder is not None:
            raise
        print(f"the embedded digits are taken, since there is no MNIST: {cause}")
        a, b = (np.asarray(part) for part in data.digits().train)
        return "embedded digits, 8 x 8", a, b
    return "MNIST, 14 x 14", a.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196), b


def problems(a: np.ndarray, b: np.ndarray) -> dict[str, diamond.Problem]:
    """With a last layer for each agent, and with one for all."""
    selected = np.random.default_rng(0).permutation(len(b))[: AGENTS * ROWS]
    a, b = a[selected].astype(np.float32), b[selected]
    split = data.partition.split(data.partition.dirichlet(b, AGENTS, 1.0, 0), (0.4, 0.4, 0.2), 0)
    rows = [[{"a": a[i], "b": b[i]} for i in part] for part in split]
    personal = diamond.gallery.meta_learning(*rows, widths=(WIDTH,), regularizer=0.1)
    losses = personal.upper, personal.lower, personal.init
    shared = diamond.Problem(*losses, *rows, personal.metrics, lower_level="common")
    return {name: shared if name == "SPARKLE" else personal for name in METHODS}


def rounds_to_target(history: dict[str, np.ndarray]) -> int | None:
    """The round at whose evaluation the target is met first."""
    is_met = (history["accuracy"] >= ACCURACY) & (history["consensus"] <= CONSENSUS)
    return int(history["round"][is_met.argmax()]) if is_met.any() else None


def tune_steps(name: str, problem: diamond.Problem, rounds: int) -> tuple[float, float]:
    """The steps of the grid with the fewest rounds to the target, else of the best accuracy."""
    grid = list(itertools.product(ALPHAS, BETAS))
    runs = [(METHODS[name](*steps), TUNING) for steps in grid]

    def rank(outcome) -> tuple[float, float]:
        if outcome.diverged is not None:
            return np.inf, 0.0
        round_met = rounds_to_target(outcome.history)
        return np.inf if round_met is None else round_met, -outcome.history["accuracy"][-1]

    ranks = [
        rank(outcome)
        for outcome in simulate_many(problem, TOPOLOGIES["geometric"](), runs, rounds, EVERY)
    ]
    return grid[min(range(len(grid)), key=ranks.__getitem__)]


def seconds(network_used: Network, size: int, rounds: int | None) -> dict[str, float]:
    """Of so many rounds, an exchange of `size` bytes each, on each medium; inf for None."""
    if rounds is None:
        return dict.fromkeys(MEDIA, np.inf)
    links_by_medium = {
        medium: network_used.with_links(**LINKS, **turns).links for medium, turns in MEDIA.items()
    }
    return {
        medium: LinkClock(links, [(size, False)], 0).seconds(rounds)
        for medium, links in links_by_medium.items()
    }


def to_target(steps, problems_by_method, options) -> list[dict]:
    """A row for every method, compression and topology."""
    rows = []
    for name, (code, channel), (graph, make) in itertools.product(
        METHODS, COMPRESSIONS.items(), TOPOLOGIES.items()
    ):
        network_used, problem, algorithm = (
            make(),
            problems_by_method[name],
            METHODS[name](*steps[name]),
        )
        network_used = network_used.through(*channel) if channel else network_used
        runs = [(algorithm, seed) for seed in range(options.seeds)]
        outcomes = simulate_many(problem, network_used, runs, options.rounds, EVERY)
        rounds_met = [
            None if o.diverged is not None else rounds_to_target(o.history) for o in outcomes
        ]
        history = outcomes[0].history
        sent = history["bytes"][-1] - history["bytes"][0]
        size = int(sent / network_used.count_messages(max(int(history["round"][-1]), 1)))
        seconds_taken = [seconds(network_used, size, k) for k in rounds_met]
        middle = {
            medium: float(np.median([seconds_of_run[medium] for seconds_of_run in seconds_taken]))
            for medium in MEDIA
        }
        rounds = float(np.median([np.inf if k is None else k for k in rounds_met]))
        row = {"method": name, "compression": code, "topology": graph, "bytes": size}
        rows.append(row | {"rounds": rounds, "seconds": middle})
        print(f"{name:8} {code:9} {graph:12} {size:7,} B {rounds:5} rounds", middle, flush=True)
    return rows


def through_noise(steps, problems_by_method, options) -> list[dict]:
    """Where the same rounds end on the geometric graph, by SNR; None: no noise."""
    rows = []
    cases = [(None, 1.0), *itertools.product(SNR, GAMMAS)]
    for name, (snr, gamma) in itertools.product(METHODS, cases):
        network_used = TOPOLOGIES["geometric"]()
        if snr is not None:
            network_used = network_used.through(channels.noise(snr=snr), gamma=gamma)
        runs = [(METHODS[name](*steps[name]), seed) for seed in range(options.seeds)]
        outcomes = simulate_many(
            problems_by_method[name], network_used, runs, options.rounds, EVERY
        )
        end = lambda o, key: float(np.mean(o.history[key][-3:]))
        diverged = any(o.diverged is not None for o in outcomes)
        measures = {
            key: np.nan if diverged else float(np.median([end(o, key) for o in outcomes]))
            for key in ("accuracy", "consensus")
        }
        rows.append({"method": name, "gamma": gamma, "snr": snr} | measures)
        print(f"{name:8} gamma {gamma} SNR {snr} dB", measures, flush=True)
    return rows


def draw(rows: list[dict], noisy: list[dict], path: Path) -> None:
    """Bars of seconds, a panel a method; below, where rounds through noise end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    panels = top.subplots(1, len(METHODS), sharey=True)
    for panel, name in zip(panels, METHODS):
        for k, code in enumerate(COMPRESSIONS):
            rows_of_method = [r for r in rows if (r["method"], r["compression"]) == (name, code)]
            positions, bar_style = (
                np.arange(len(rows_of_method)) + 0.2 * k,
                {"align": "edge", "width": 0.2},
            )
            height = np.array([r["seconds"]["shared"] for r in rows_of_method])
            panel.bar(
                positions, np.where(np.isfinite(height), height, np.nan), label=code, **bar_style
            )
            for x in positions[~np.isfinite(height)]:
                panel.annotate("never", (x + 0.1, 0.02), xycoords=("data", "axes fraction"),
                               rotation=90, ha="center", va="bottom", fontsize=7)  # fmt: skip
        panel.set_xticks(np.arange(len(TOPOLOGIES)) + 0.4, list(TOPOLOGIES), rotation=20)
        panel.set(title=name, yscale="log")
        panel.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("network seconds to the target,\nshared medium")
    legend = panels[0].get_legend_handles_labels()
    top.legend(*legend, loc="outside upper center", ncols=len(COMPRESSIONS), fontsize=9)
    for panel, key in zip(bottom.subplots(1, 2), ("accuracy", "consensus")):
        for (k, name), gamma in itertools.product(enumerate(METHODS), GAMMAS):
            rows_of_method = [r for r in noisy if r["method"] == name]
            y = [r[key] for r in rows_of_method if r["snr"] is not None and r["gamma"] == gamma]
            style = {"color": f"C{k}", "linestyle": "-" if gamma == 1 else "--", "marker": "o"}
            panel.plot(SNR, y, label=f"{name}, gamma = {gamma:g}", **style)
            clean = next(r[key] for r in rows_of_method if r["snr"] is None)
            panel.plot(SNR[-1] + 3, clean, "s", color=f"C{k}")
        panel.set_xticks([*SNR, SNR[-1] + 3], [*map(str, SNR), "no\nnoise"])
        panel.set(xlabel="SNR in dB", ylabel=f"{key} at the end")
        panel.grid(alpha=0.25)
        if key == "consensus":
            panel.set(yscale="log", ylim=(0.02, 1e3))  # what is lost lies far above
            panel.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def to_strict_json(value):
    """The same for strict JSON: None for what is not finite."""
    if isinstance(value, dict):
        return {key: to_strict_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_strict_json(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    source, a, b = digits(options.data)
    problems_by_method = problems(a, b)
    always = lambda agents, entries: True
    with (
        patch("diamond.network.mixing.mixer.prefers_dense", always),
        patch("diamond.network.mixing.lossy_mixer.prefers_dense", always),
    ):
        steps = {
            name: tune_steps(name, problems_by_method[name], options.rounds) for name in METHODS
        }
        print(source, steps, flush=True)
        rows, noisy = (
            to_target(steps, problems_by_method, options),
            through_noise(steps, problems_by_method, options),
        )
    about = {"data": source, "links": LINKS, "rounds": options.rounds, "seeds": options.seeds}
    about |= {"accuracy": ACCURACY, "consensus": CONSENSUS, "alpha, beta": steps}
    text = json.dumps(to_strict_json(about | {"rows": rows, "noise": noisy}), indent=1)
    (options.out / "links.json").write_text(text + "\n")
    draw(rows, noisy, options.out / "links.png")


if __name__ == "__main__":
    main()
