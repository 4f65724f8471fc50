"""Counts of oracle calls, which the stages of a method return."""

from .core.cost import Cost as Cost
from .core.cost import Count as Count
from .core.cost import add as add
from .core.cost import charge as charge
from .core.cost import each as each
from .core.cost import total as total
from .core.cost import zeros as zeros
