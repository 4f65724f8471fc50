"""One line about a network: sizes, mixing rule, lam and links."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diamond.network.communication_network import Network


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
