"""What agents are called: by their sites' names where these are known."""

from collections.abc import Mapping
from types import MappingProxyType

Names = Mapping[int, str]
UNKNOWN: Names = MappingProxyType({})


def called(names: Names, agent: int) -> str:
    """The name of the agent's site, or else its number."""
    return names.get(agent, f"agent {agent}")
