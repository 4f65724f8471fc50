"""The interface of a method: a round as one agent sees it, for methods of one's own."""

from .rounds.algorithm import NETWORKS as NETWORKS
from .rounds.algorithm import Algorithm as Algorithm
from .rounds.algorithm import Estimate as Estimate
from .rounds.algorithm import Message as Message
from .rounds.algorithm import Stage as Stage
from .rounds.algorithm import State as State
