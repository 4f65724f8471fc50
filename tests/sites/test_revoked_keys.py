"""Keys that are revoked in mid-run: stored messages are signed again, old keys sign nothing."""

import asyncio
from functools import partial

import pytest
from crash_cluster import EVERY, LIMITS, ROUNDS
from helpers import same_bits
from test_signed_messages import LIAR, MESSAGE, RUN, altered, endpoint, send, team

from diamond.sites.identity import certificate_authority, roster
from diamond.sites.rounds.node import Node
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.reachability import all_neighbours
from diamond.sites.transport.wire_format import Envelope, FrameError, layout_of
from diamond.sites.trust.signed_messages import sign_messages
from diamond.sites.trust.signed_records import StatementSigner, digest_of

DOWN, DOWN_ROUND = 1, 3
NETWORK, AGENTS = team("complete", 4)


class Keys:
    """Bundles of all sites of a federation, which can be renewed."""

    def __init__(self, folder):
        self.folder = folder
        sites = {f"site{i}": f"127.0.0.1:{7000 + i}" for i in range(4)}
        self.places = certificate_authority.create_federation(folder, "trial", sites, NETWORK)
        self.load()

    def load(self):
        self.bundles = [roster.load_bundle(place) for place in self.places.values()]

    def revoke(self, site=None):
        certificate_authority.renew_keys(self.folder, site, overlap=0.0)
        self.load()

    def signer(self, number):
        return StatementSigner(lambda: self.bundles[number])


async def run_sites(folder, keys, missing, revoked=()):
    """All sites, one of which is down while the keys of `revoked` are revoked."""
    wire, tasks = InProcessNetwork(), {}
    is_down = asyncio.Event()

    def start(number):
        fixed = AGENTS[number], ROUNDS, wire.transport(number), folder / str(number), EVERY
        sign = partial(sign_messages, keys.signer(number))
        node = Node(*fixed, LIMITS, run_inline, sign=sign, missing=missing)

        async def pause():
            if node.t == DOWN_ROUND and revoked and not is_down.is_set():
                await asyncio.sleep(1)
                is_down.set()
                await asyncio.Event().wait()

        node.before_round = pause if number == DOWN else None
        wire.nodes[number] = node
        tasks[number] = asyncio.ensure_future(node.run())

    for number in range(4):
        start(number)
    if revoked:
        await is_down.wait()
        wire.nodes.pop(DOWN)
        tasks[DOWN].cancel()
        await asyncio.gather(tasks[DOWN], return_exceptions=True)
        for site in revoked:
            keys.revoke(site)
        start(DOWN)
    ends = await asyncio.gather(*(tasks[j] for j in range(4)))
    wire.close()
    return ends


@pytest.mark.wide(keep=["revoked1-wait"])
@pytest.mark.parametrize("missing", ["wait", "continue"])
@pytest.mark.parametrize("revoked", [(None,), ("site0",), ("site1", "site2")])
def test_a_run_continues_whose_keys_were_revoked_while_a_site_was_down(tmp_path, missing, revoked):
    keys = Keys(tmp_path / "federation")
    ends = run_simulated(run_sites(tmp_path / "runs", keys, missing, revoked))
    expected = run_simulated(run_sites(tmp_path / "quiet", keys, missing))
    assert all(same_bits(a.state, b.state) for a, b in zip(ends, expected, strict=True))
    assert not list(tmp_path.rglob("proofs/*.json"))


def test_a_revoked_key_makes_no_statement(tmp_path):
    """A thief has the old key of site 2, and site 1 passes on what it signs."""
    keys, lines = Keys(tmp_path / "federation"), []
    stolen = StatementSigner(lambda bundle=keys.bundles[LIAR]: bundle)
    signers = (
        {i: keys.signer(i) for i in range(4)},
        None,
        None,
        dict(enumerate(all_neighbours(NETWORK))),
    )
    victim, accuser = endpoint(signers, 0, lines=lines), endpoint(signers, 1)
    source = endpoint(signers, LIAR)
    stored = source.encode(Envelope(RUN, LIAR, 3), MESSAGE)
    read = lambda frame, **options: victim.decode(
        frame, Envelope(RUN, LIAR, 3), layout_of(MESSAGE), **options
    )
    read(stored)
    keys.revoke("site2")
    with pytest.raises(FrameError, match="not of a site of this roster"):
        read(stored)
    read(stored, is_stored=True)  # accepted in its time
    renewed = source.renew(stored, Envelope(RUN, LIAR, 3))
    read(renewed)
    assert source.renew(renewed, Envelope(RUN, LIAR, 3)) is renewed
    forgery = stolen.sign(RUN, 3, 0, digest_of(*map(bytes, altered())))
    accuser._identities[forgery.slot[:2]] = (
        stolen.identify(stolen.certificate)[1],
        stolen.certificate,
    )
    accuser._queue.append((forgery, 0))
    send(accuser, victim, 4)
    assert not victim.proven and not lines
