"""Costs by which methods are compared: columns of the history of a run, with their titles."""

COST_TITLES = {
    "round": "rounds",
    "samples": "samples per agent",
    "calls": "gradients and products per agent, in rows",
    "bytes": "bytes sent by all agents",
    "seconds": "seconds of computing",
    "network_seconds": "seconds on the network's links",
}
MEASURES = ("round", "upper_loss")  # of a run's history, kept beside the costs
COSTS = tuple(name for name in COST_TITLES if name != "round")
