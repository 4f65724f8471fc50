"""Names of agents: those of their sites, if known."""

import re
from collections.abc import Mapping

SiteNames = Mapping[int, str]


def site_name(names: SiteNames, agent: int) -> str:
    """Return the name of the agent's site, or its number."""
    return names.get(agent, f"agent {agent}")


def replace_agent_numbers(text: str, names: SiteNames) -> str:
    """Replace "agent 0" and so on in the text by the names of sites."""
    return re.sub(r"\bagent (\d+)\b", lambda match: site_name(names, int(match[1])), text)
