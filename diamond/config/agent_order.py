"""Networks of edges between named agents, in the order of the sites."""

from collections.abc import Sequence
from dataclasses import replace

from ..core.suggestions import did_you_mean
from .components import EDGES, Component, read_network
from .validation_errors import config_error


def order_agents(component: Component, sites: Sequence[str]) -> Component:
    """Return a network of edges between named agents with its agents in the order of `sites`."""
    edges = component.options.get("edges", [])
    if component.name != EDGES or not isinstance(edges[0][0], str):
        return component
    names = list(dict.fromkeys(end for edge in edges for end in edge))
    if not sites and "agents" not in component.options:
        message = (
            f"name {', '.join(names)}, but the problem's agents have no names; list them in their "
            f'order, as in agents = ["{names[0]}", ...], or number them'
        )
        raise config_error(message, "edges")
    if not sites:
        return component
    for name in names:
        if name not in sites:
            raise config_error(f"no site {name!r}; {did_you_mean(name, sites)}", "edges")
    if missing := [site for site in sites if site not in names]:
        raise config_error(f"site {missing[0]!r} has no edge; join it with another", "edges")
    ordered = read_network({"graph": EDGES, **component.options, "agents": [*sites]})
    return replace(ordered, label=component.label)
