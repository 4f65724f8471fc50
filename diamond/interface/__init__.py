"""The interface of a method: a round as one agent sees it, for methods of one's own."""

from .round_interface import NETWORKS as NETWORKS
from .round_interface import Algorithm as Algorithm
from .round_interface import Estimate as Estimate
from .round_interface import Message as Message
from .round_interface import Method as Method
from .round_interface import Stage as Stage
from .round_interface import State as State
