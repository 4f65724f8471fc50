"""Drawings of networks."""

from pathlib import Path

from diamond.network.communication_network import Network

MOST_NAMED = 60  # most agents with labels: more labels hide the graph


def draw(network: Network, path: str | Path) -> Path:
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
