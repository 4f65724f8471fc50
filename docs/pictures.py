"""Draw the pictures of the home page: `python docs/pictures.py` writes home.svg and report.png.

The report is photographed in Chromium, by playwright.
"""

import shutil
import tempfile
from pathlib import Path

import matplotlib
import numpy as np

import diamond

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "diamond", "font.size": 11}

from matplotlib import pyplot as plt  # noqa: E402

STEPS = {"alpha": 0.005, "beta": 0.2}
WEIGHTS = {"eta": 0.02, "gamma": 0.05}
METHODS = {
    "DIAMOND": (diamond.diamond, STEPS | WEIGHTS, "#1f77b4"),
    "GT-SGD": (diamond.gt_sgd, STEPS, "#2ca02c"),
    "M-SGD": (diamond.m_sgd, STEPS | WEIGHTS, "#ff7f0e"),
    "D-SGD": (diamond.dsgd, STEPS, "#d62728"),
}


def draw_network(axes, network):
    """Draw the agents on a circle, and their links."""
    angles = 2 * np.pi * np.arange(network.agents) / network.agents
    points = np.stack([np.sin(angles), np.cos(angles)], axis=1)
    for i, j in network.edges:
        axes.plot(*points[[i, j]].T, color="#90a4ae", lw=1.5, zorder=1)
    axes.scatter(*points.T, s=700, color="#cfd8dc", edgecolor="#455a64", zorder=2)
    for i, point in enumerate(points):
        axes.text(*point, f"$f_{i}, g_{i}$", ha="center", va="center", fontsize=9, zorder=3)
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
    axes.set_title("each agent keeps its rows")
    axes.axis("off")


def compare(network):
    """Compare four methods with the same step sizes and draws."""
    problem = diamond.gallery.quadratic(agents=network.agents, upper=5, lower=5, rows=64, seed=1)
    chain = diamond.hypergradient.neumann(20)
    methods = {
        label: make(**numbers, batch=8, hypergradient=chain)
        for label, (make, numbers, _) in METHODS.items()
    }
    return diamond.compare(problem, network, methods, rounds=3000, every=60, progress=False)


def draw_runs(axes, comparison):
    """Draw the metric of the methods along the rounds."""
    for (label, _), run in comparison.runs.items():
        color = METHODS[label][2]
        axes.semilogy(run.history["round"], run.history["metric"], color=color, label=label)
    axes.set(xlabel="round", title="stationarity + consensus + lower error")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def photograph_report(comparison, path):
    """Write a picture of the report of a comparison, as a browser shows it."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = comparison.save(Path(folder) / "four methods")
        page_file = diamond.report.build([runs], Path(folder) / "report.html")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 2400})
        page.goto(page_file.as_uri())
        page.locator("#curves-chart .main-svg").first.wait_for()
        page.locator("#measure").select_option("metric")
        page.wait_for_timeout(500)  # the chart is drawn when it comes into view
        convergence, costs = (
            page.locator(name).bounding_box() for name in ("#convergence", "#target-section")
        )
        bottom = costs["y"] + costs["height"]
        left, top = convergence["x"] - 20, convergence["y"] + 10
        clip = {
            "x": left,
            "y": top,
            "width": convergence["width"] + 40,
            "height": bottom + 12 - top,
        }
        page.screenshot(path=path, full_page=True, clip=clip)
        browser.close()
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def main():
    """Write the pictures."""
    network = diamond.network.erdos_renyi(9, p=0.3, seed=0)
    comparison = compare(network)
    photograph_report(comparison, Path(__file__).with_name("report.png"))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), width_ratios=(2, 3))
    draw_network(left, network)
    draw_runs(right, comparison)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("home.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
