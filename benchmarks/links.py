"""Seconds to a target on slow links: which topology, which method, which medium.

    python benchmarks/links.py [--rounds 1000] [--seeds 2] [--target 0.05] [--agents 20]

20 agents with 90 digits each (two labels an agent; 36 rows to train, 36 to validate), hidden layers
x of 1,720 numbers that they share (6,880 bytes a vector) and a last layer each; batches of 16; the
constants of `diamond demo`, the same on every topology. Links of 1 Mbit/s, 10 ms and 5 % loss on
five graphs: agents in the unit square joined within 0.35, a ring, a star, the exponential and the
complete graph. A medium says who may talk at once: all (`wired`), an agent with one neighbour at a
time (`half duplex`), nobody else within range, that is among those joined (`shared`). Shown is the
median over the seeds of the network seconds until the metric of eq. (11) is at the target; the
trajectory does not depend on the medium. Writes docs/links.json and docs/links.png. A row of
CHANNELS is a transformation of the network.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

import diamond
from diamond import schedule
from diamond.experiment import demo
from diamond.measure.link_costs import LinkCosts
from diamond.network import Network
from diamond.rounds.traffic import traffic

LINKS = {"rate": 1e6, "latency": 0.01, "loss": 0.05}
MEDIA = {
    "wired": {},
    "half duplex": {"half_duplex": True},
    "shared": {"shared_medium": True},
}
CHANNELS: dict[str, Callable[[Network], Network]] = {"float32": lambda network: network}
TOPOLOGIES: dict[str, Callable[[int], Network]] = {
    "geometric": lambda m: diamond.network.geometric(m, 0.35, seed=0),
    "ring": diamond.network.ring,
    "star": diamond.network.star,
    "exponential": diamond.network.exponential,
    "complete": diamond.network.complete,
}
BATCH = 16
OUT = Path(__file__).parent.parent / "docs"


def methods() -> dict[str, object]:
    """DIAMOND and D-SGD with the constants of the demo."""
    alpha, beta, eta = demo.METHODS["DIAMOND"]
    own = dict(batch=BATCH, hypergradient=demo.CHAIN)
    plain = schedule.power(demo.METHODS["D-SGD"][0])
    return {
        "DIAMOND": diamond.diamond(**schedule.paper(alpha, beta, eta, eta), **own),
        "D-SGD": diamond.dsgd(plain, schedule.scaled(demo.METHODS["D-SGD"][1], plain), **own),
    }


def seconds(problem, network: Network, algorithm, asked) -> dict[str, float]:
    """Network seconds to the target on each medium, the median over the seeds; inf if never."""
    found: dict[str, list[float]] = {medium: [] for medium in MEDIA}
    linked = network.with_links(**LINKS)
    for seed in range(asked.seeds):
        run = diamond.simulate(
            problem,
            linked,
            algorithm,
            asked.rounds,
            seed,
            asked.every,
            stop={"metric": asked.target},
        )
        told = traffic(algorithm, problem.objectives(BATCH), *problem.start(seed))
        there = run.history["metric"][-1] <= asked.target
        for medium, turns in MEDIA.items():
            costs = LinkCosts(linked.with_links(**turns), told, seed)
            spent = costs.of(run.rounds, 0, 0, 0.0)["network_seconds"]
            found[medium].append(spent if there else np.inf)
        assert not there or found["wired"][-1] == run.history["network_seconds"][-1]
    return {medium: float(np.median(values)) for medium, values in found.items()}


def draw(rows: list[dict], path: Path) -> None:
    """Bars of all topologies, a panel a medium."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    panels = figure.subplots(1, len(MEDIA), squeeze=False)[0]
    series = list(dict.fromkeys((row["method"], row["channel"]) for row in rows))
    for panel, medium in zip(panels, MEDIA):
        for k, who in enumerate(series):
            own = [row for row in rows if (row["method"], row["channel"]) == who]
            place = np.arange(len(own)) + 0.8 * k / len(series)
            height = [row["seconds"][medium] or np.nan for row in own]
            panel.bar(place, height, 0.8 / len(series), align="edge", label=", ".join(who))
            for x in place[np.isnan(height)]:
                panel.text(
                    x + 0.4 / len(series),
                    0.02,
                    "never",
                    transform=panel.get_xaxis_transform(),
                    rotation=90,
                    ha="center",
                    fontsize=7,
                )
            panel.set_xticks(
                np.arange(len(own)) + 0.4, [row["topology"] for row in own], rotation=30
            )
        panel.set(title=medium, yscale="log", ylabel="network seconds to the target")
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=1000)
    words.add_argument("--seeds", type=int, default=2)
    words.add_argument("--agents", type=int, default=20)
    words.add_argument("--every", type=int, default=10)
    words.add_argument("--target", type=float, default=0.05, help="Of the metric, eq. (11).")
    words.add_argument("--out", type=Path, default=OUT)
    asked = words.parse_args()
    problem, rows = demo.digits(asked.agents), []
    print("topology     edges   lam    method   channel  " + "  ".join(f"{m:>11}" for m in MEDIA))
    for name, make in TOPOLOGIES.items():
        for label, algorithm in methods().items():
            for channel, through in CHANNELS.items():
                network = through(make(asked.agents))
                took = seconds(problem, network, algorithm, asked)
                edges, lam = len(network.edges), network.lam
                shown = "  ".join(f"{took[medium]:9.1f} s" for medium in MEDIA)
                print(f"{name:12} {edges:5} {lam:.3f}  {label:8} {channel:8} {shown}", flush=True)
                finite = {k: v if np.isfinite(v) else None for k, v in took.items()}
                row = {"topology": name, "edges": edges, "lam": lam, "method": label}
                rows.append(row | {"channel": channel, "seconds": finite})
    sizes = {key: getattr(asked, key) for key in ("agents", "rounds", "seeds", "every", "target")}
    text = json.dumps({"links": LINKS, "batch": BATCH, **sizes, "rows": rows}, indent=1)
    (asked.out / "links.json").write_text(text + "\n")
    draw(rows, asked.out / "links.png")


if __name__ == "__main__":
    main()
