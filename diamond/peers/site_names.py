"""Names of agents: those of their sites, if known."""

import re
from collections.abc import Mapping
from types import MappingProxyType

Names = Mapping[int, str]
UNKNOWN: Names = MappingProxyType({})


def called(names: Names, agent: int) -> str:
    """Return the name of the agent's site, or its number."""
    return names.get(agent, f"agent {agent}")


def by_name(text: str, names: Names) -> str:
    """Replace "agent 0" and so on in the text by the names of sites."""
    return re.sub(r"\bagent (\d+)\b", lambda found: called(names, int(found[1])), text)
