"""Counts of oracle calls, which the stages of a method return."""

from .core.cost_counter import Cost as Cost
from .core.cost_counter import Count as Count
from .core.cost_counter import add as add
from .core.cost_counter import agent_counters as agent_counters
from .core.cost_counter import charge as charge
from .core.cost_counter import total as total
from .core.cost_counter import zeros as zeros
