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


@pytest.mark.wide(keep=["fading, two turns"])
@pytest.mark.parametrize("name", CASES)
def test_what_was_lost_is_what_the_rounds_did_not_hear(name):
    """Agent j tells the j-th unit vector, so a change says whom each agent has heard."""
    lossy, turns = CASES[name]
    mixer, rounds = make_mixer(lossy), 12
    message = Message(jnp.eye(5), ())
    exchange = jax.jit(
        lambda t, turn, state: mixer.exchange(message, ExchangeId(key(7), t, turn), state)
    )
    state = mixer.start([Message(jax.ShapeDtypeStruct((5,), jnp.float64), ())])
    received = np.zeros((5, 5), int)
    for t in range(rounds):
        for turn in turns:
            change, state = exchange(t, turn, state)
            received += np.asarray(change.average) > 0
    lost_by_edge = count_lost_messages(lossy, 7, rounds, turns)
    assert list(lost_by_edge) == lossy.edges
    for (i, j), counts in lost_by_edge.items():
        assert counts.sent == lossy.count_messages_by_edge(rounds)[i, j] * len(turns)
        assert counts.sent - counts.lost == received[i, j] + received[j, i]
    assert sum(counts.lost for counts in lost_by_edge.values()) > 0


@pytest.mark.wide
def test_a_run_counts_its_losses_and_keeps_them(tmp_path):
    lossy = ring(4).through(channels.drops(0.25))
    chain = diamond.hypergradient.exact()
    run = diamond.simulate(
        quad(), lossy, build("dsgd", alpha=0.05, beta=0.2, batch=3, hypergradient=chain), 40
    )
    assert run.lost_messages == count_lost_messages(lossy, 0, 40, [None])
    lost, sent = (
        sum(getattr(one, k) for one in run.lost_messages.values()) for k in ("lost", "sent")
    )
    assert sent == run.messages == 320 and abs(lost / sent - 0.25) < 0.12
    assert all(one.lost % 2 == 0 for one in run.lost_messages.values())  # both ends know
    folder = run.save(tmp_path / "run")
    assert diamond.load(folder, quad()).lost_messages == run.lost_messages
    assert count_lost_messages(ring(4).through(channels.quantized(4)), 0, 40, [None]) == {}
