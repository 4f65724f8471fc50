"""Compare four methods on nine agents: a table, and a figure of the network and the convergence.

python examples/compare_methods.py [FIGURE]; the figure needs the extra `plot`.
"""

import sys

import matplotlib
import networkx as nx
from matplotlib.figure import Figure

import diamond

problem = diamond.gallery.quadratic(agents=9)  # its solution is known
network = diamond.network.erdos_renyi(9, p=0.3, seed=0)
steps = {"batch": 8, "alpha": 0.03, "beta": 0.5}
methods = {
    "DIAMOND: tracking and momentum": diamond.diamond(**steps),
    "GT-SGD: tracking": diamond.gt_sgd(**steps),
    "M-SGD: momentum": diamond.m_sgd(**steps),
    "D-SGD": diamond.dsgd(**steps),
}
comparison = diamond.compare(problem, network, methods, rounds=500, every=10)
print(comparison.table())

matplotlib.rcParams["svg.hashsalt"] = "diamond"  # the same file from the same numbers
figure = Figure(figsize=(9, 3.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1, 2))
nx.draw(network.graph, nx.kamada_kawai_layout(network.graph), left, node_color="#0072B2")
left.set_title("nine agents, each with private data", fontsize=10)
for (label, _), run in comparison.runs.items():
    right.semilogy(run.history["round"], run.history["metric"], label=label)
right.set(xlabel="round", title="distance from a solution: metric of eq. (11)")
right.title.set_fontsize(10)
right.legend(frameon=False, fontsize=8)
figure.savefig(sys.argv[1] if sys.argv[1:] else "comparison.svg", metadata={"Date": None})
