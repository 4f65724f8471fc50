"""What agents are called: by their sites' names where these are known."""

import re
from collections.abc import Mapping
from types import MappingProxyType

Names = Mapping[int, str]
UNKNOWN: Names = MappingProxyType({})


def called(names: Names, agent: int) -> str:
    """The name of the agent's site, or else its number."""
    return names.get(agent, f"agent {agent}")


def by_name(text: str, names: Names) -> str:
    """The text with the names of sites in place of "agent 0" and so on."""
    return re.sub(r"\bagent (\d+)\b", lambda found: called(names, int(found[1])), text)
