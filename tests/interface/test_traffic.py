"""What travels: the messages of a round, over all edges, both ways."""

import jax
import numpy as np
import pytest
from helpers import ESTIMATORS, build, quad

import diamond
from diamond.interface.round_interface import Message
from diamond.interface.traffic import count_traffic, message_shapes
from diamond.schedules.deferred import ResolutionContext, resolve

pytestmark = pytest.mark.quick


@pytest.mark.wide
def test_bytes_are_the_messages_over_the_edges():
    q, network = quad(), diamond.network.star(4)
    for name, vectors in [("dsgd", 1), ("gt_sgd", 2)]:  # x; x and u
        options = dict(alpha=0.01, beta=0.1, batch=3, hypergradient=ESTIMATORS["neumann_sum"])
        run = diamond.simulate(q, network, build(name, **options), 5, every=2)
        message = vectors * 3 * 8  # three numbers in double precision
        np.testing.assert_array_equal(
            run.history["bytes"], 2 * 3 * message * np.array([0, 2, 4, 5])
        )
        assert run.traffic == {edge: 2 * 5 * message for edge in [(0, 1), (0, 2), (0, 3)]}
        assert run.messages == 5 * 2 * 3
        assert sum(run.traffic.values()) == run.history["bytes"][-1]


def test_the_messages_of_a_round_are_known_by_their_shapes():
    """SPARKLE tells x, y and z with their trackers; MA-DSBO the same in inner loops."""
    q = quad(lower_level="common")
    given = q.objectives(2), *q.start(0)
    for name, inner in (("sparkle", 1), ("ma_dsbo", 2)):
        made = build(name, alpha=0.1, beta=0.1, delta=0.1, theta=0.5, batch=2, inner=inner)
        made = resolve(made, ResolutionContext(q, diamond.network.star(4), 2, 0)).algorithm
        shapes = message_shapes(made, *given)
        assert all(isinstance(message, Message) for message in shapes)
        each = [sum(leaf.size for leaf in jax.tree.leaves(message)) for message in shapes]
        repeats = [stage.repeats for stage in made.stages]
        result = count_traffic(made, *given)
        assert result.bytes == 8 * np.dot(repeats, each) and result.exchanges == sum(repeats)
