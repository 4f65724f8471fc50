"""Messages lost on each edge: what the rounds themselves have met, counted afterwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import build, quad, ring

import diamond
from diamond import network
from diamond.core.sampling import ExchangeId, key
from diamond.interface.round_interface import Message
from diamond.network import channels
from diamond.network.mixing.lossy_mixer import make_mixer
from diamond.network.mixing.lost_messages import count_lost_messages

CASES = {
    "bursts": (ring(5).through(channels.drops(0.3, burst=3)), [None]),
    "fading, two turns": (ring(5).through(channels.fading(threshold=0.5)), [0, 2]),
    "receiver": (ring(5).through(channels.drops(0.3, known="receiver")), [None]),
    "changing": (
        network.changing([network.path(5), network.star(5)]).through(channels.drops(0.4)),
        [None],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_lost_is_what_the_rounds_did_not_hear(name):
    """Agent j tells the j-th unit vector, so a change says whom each agent has heard."""
    made, turns = CASES[name]
    mixer, rounds = make_mixer(made), 12
    told = Message(jnp.eye(5), ())
    exchange = jax.jit(
        lambda t, turn, kept: mixer.exchange(told, ExchangeId(key(7), t, turn), kept)
    )
    kept = mixer.start([Message(jax.ShapeDtypeStruct((5,), jnp.float64), ())])
    heard = np.zeros((5, 5), int)
    for t in range(rounds):
        for turn in turns:
            change, kept = exchange(t, turn, kept)
            heard += np.asarray(change.average) > 0
    found = count_lost_messages(made, 7, rounds, turns)
    assert list(found) == made.edges
    for (i, j), counts in found.items():
        assert counts.sent == made.count_messages_by_edge(rounds)[i, j] * len(turns)
        assert counts.sent - counts.lost == heard[i, j] + heard[j, i]
    assert sum(counts.lost for counts in found.values()) > 0


def test_a_run_counts_its_losses_and_keeps_them(tmp_path):
    made = ring(4).through(channels.drops(0.25))
    chain = diamond.hypergradient.exact()
    run = diamond.simulate(
        quad(), made, build("dsgd", alpha=0.05, beta=0.2, batch=3, hypergradient=chain), 40
    )
    assert run.lost_messages == count_lost_messages(made, 0, 40, [None])
    lost, sent = (
        sum(getattr(one, k) for one in run.lost_messages.values()) for k in ("lost", "sent")
    )
    assert sent == run.messages == 320 and abs(lost / sent - 0.25) < 0.12
    assert all(one.lost % 2 == 0 for one in run.lost_messages.values())  # both ends know
    folder = run.save(tmp_path / "run")
    assert diamond.load(folder, quad()).lost_messages == run.lost_messages
    assert count_lost_messages(ring(4).through(channels.quantized(4)), 0, 40, [None]) == {}
