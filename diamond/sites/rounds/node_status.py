"""Status of a node as plain data: its round, whom it waits for, and who is away or late."""

from typing import TYPE_CHECKING, Any

from .deadline_edges import DeadlineEdges

if TYPE_CHECKING:
    from .node import Node


def describe_node(node: "Node") -> dict[str, Any]:
    """Return the state of the agent and whom it waits for."""
    state, edges = "stopping" if node.shutdown.requested else "running", node.edges
    has_ended = node.progress is not None and node.progress.has_ended
    if node.t == node.planned_rounds or has_ended:
        state = "finished"
    elif edges and edges.stuck:
        state = "stuck"
    waiting = [
        {"agent": j, "seconds": s.seconds_awaited(), "why": node.wait_records[j].last_error}
        for j, s in node.neighbour_status.items()
        if s.awaited_since is not None
    ]
    late = edges.late if isinstance(edges, DeadlineEdges) else set()
    away = sorted({*edges.absent} | late) if edges else []
    position = {"agent": node.agent.number, "round": node.t, "rounds": node.planned_rounds}
    status: dict[str, Any] = position | {"state": state, "waiting": waiting, "away": away}
    if has_ended and node.progress is not None:
        status["message"] = node.progress.end_reason
    status["pace"] = node.seconds / max(1, node.t - node.first_round)
    if node.ledger is not None:
        status |= {"epsilon": node.ledger.spent, "budget": node.ledger.terms.epsilon}
    if node.signatures is not None:
        status |= {"liars": sorted(node.signatures.proven)}
    return status
