"""The interface of a method: a round as one agent sees it, for methods of one's own."""

from .interface.round_interface import NETWORKS as NETWORKS
from .interface.round_interface import Algorithm as Algorithm
from .interface.round_interface import Estimate as Estimate
from .interface.round_interface import Message as Message
from .interface.round_interface import Method as Method
from .interface.round_interface import Stage as Stage
from .interface.round_interface import State as State
