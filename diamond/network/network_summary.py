"""A network in one line (sizes, mixing rule, lam and links), and as a drawing."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diamond.network.communication_network import Network

MOST_NAMED = 60  # most agents with labels: more labels hide the graph


def summarize(network: "Network") -> str:
    """Describe sizes, rule, lam and number of draws in one line."""
    # Three digits of 0.9999996 would read 1.000, which no connected graph has.
    lam = f"{network.lam:.3f}" if network.lam < 0.9995 else f"1 - {1 - network.lam:.1e}"
    edges = network.graph.number_of_edges()
    link = "arc" if network.graph.is_directed() else "edge"
    parts = [
        f"{network.agents} agent{'s' * (network.agents != 1)}",
        f"{edges} {link}{'s' * (edges != 1)}",
        *[f"in turn over {len(network.sequence)} rounds"] * bool(network.sequence),
        f"{network.mixing} mixing",
        f"lam = {lam}",
    ]
    if network.draws > 1:
        parts.append(f"drawn {network.draws} times")
    if network.links is not None:
        parts.append(f"links of {network.links!r}")
    return f"{network.name}: {', '.join(parts)}"


def draw(network: "Network", path: str | Path) -> Path:
    """Draw the graph and write it to `path`; thicker edges have more weight."""
    import networkx as nx
    from matplotlib.figure import Figure

    graph, matrix = network.graph, network.weights
    places = nx.get_node_attributes(graph, "pos") or nx.kamada_kawai_layout(graph)
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot()
    weights = [float(matrix[j, i]) for i, j in network.edges]
    widths = [0.5 + 2.5 * weight / max(weights) for weight in weights]
    nx.draw_networkx_edges(
        graph, places, edgelist=network.edges, width=widths, edge_color="#888888", ax=axes
    )
    has_labels = network.agents <= MOST_NAMED
    nx.draw_networkx_nodes(
        graph, places, node_color="#0072B2", node_size=320 if has_labels else 20, ax=axes
    )
    if has_labels:
        nx.draw_networkx_labels(graph, places, font_color="white", font_size=9, ax=axes)
    axes.set_title(str(network), fontsize=8)
    axes.set_axis_off()
    figure.savefig(path, dpi=150)
    return Path(path)
