"""Masked sums at sites: bits under kills, keys that nobody replaces, what a receiver sees."""

import asyncio
from functools import cache

import jax
import numpy as np
import pytest
from crash_cluster import LIMITS, ROUNDS, Cluster, all_killed_every
from dialing_sites import found
from fast_compilation import skip_loss_checks, without_optimizations
from helpers import final_progress, flat, quad, same_bits
from lockstep_agents import agents, build_algorithm, stack_states
from scipy.stats import chisquare
from tls_sites import SHORT_TIMEOUTS, ports

import diamond
from diamond.engine.site_rehearsal import rehearse
from diamond.network.mixing import fixed_point
from diamond.network.mixing.fixed_point import LimitExceeded
from diamond.sites.identity import certificate_authority, roster
from diamond.sites.identity.credentials import Credentials
from diamond.sites.identity.handshake import compute_digests, describe_differences
from diamond.sites.memory.site_checkpoint import OtherRun
from diamond.sites.rounds.local_measures import disagreement
from diamond.sites.rounds.node import Node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.in_process_transport import InProcessNetwork, run_inline, run_simulated
from diamond.sites.transport.rpc import RpcClient
from diamond.sites.transport.server import Server
from diamond.sites.transport.wire_format import (
    Envelope,
    FrameError,
    decode,
    encode,
    max_frame_bytes,
    unpack,
)
from diamond.sites.trust.mask_keys import KEY_FILE, MaskIdentity, MaskKeys, SiteIdentity
from diamond.sites.trust.message_masks import MessageMasks, keystream

RUN, SIGNIFICANCE = "a run", 1e-6  # of a test of uniformity
NETWORK = diamond.network.complete(4)


@cache
def team(is_masked=True, network=NETWORK):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=network.agents)
    network = network.masked() if is_masked else network
    return tuple(agents(problem, network, build_algorithm("gt_sgd")))


def agree(masks):
    """Let the agents of one process agree on keys, without a network."""
    for one in masks:
        one.open(is_resumed=False)
    for one in masks:
        for j in one.keys.groups:
            one.keys.add_record(j, masks[j].keys.record)
    for one in masks:
        for j in one.keys.groups:
            records = masks[j].keys.passed_records(one.agent, one.keys.public_key)
            one.keys.add_group(j, records)
    return masks


def make_masks(folder=None, run=RUN):
    places = [folder and folder / str(agent.number) for agent in team()]
    return [MessageMasks(a, run, MaskIdentity(), p) for a, p in zip(team(), places)]


def message(agent, seed=0, scale=1.0):
    random = np.random.default_rng([agent, seed])
    layout = team()[0].plain_layout_at(0)
    return [(scale * random.normal(size=s.shape)).astype(s.dtype) for s in layout]


def masked_words(masks, sender, receiver, t, arrays):
    frame = encode(Envelope(RUN, sender, t), arrays)
    masked = masks[sender].mask_frame(receiver, t, frame)
    return decode(masked, Envelope(RUN, sender, t), team()[0].layout_at(t))


def uniformity(words):
    """Smallest p-value of a chi-square test of each of the eight bytes of the numbers."""
    rows = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)
    return 8 * min(chisquare(np.bincount(rows[:, b], minlength=256)).pvalue for b in range(8))


class Wire(InProcessNetwork):
    """A wire that records every frame by caller, callee and exchange."""

    def __init__(self, *faults):
        super().__init__(*faults)
        self.frames = {}

    async def deliver(self, hop, content):
        if hop.is_response and len(content):
            header, _ = unpack(content, 10**6)
            if header["kind"] == "message" and header["arrays"]:
                key = hop.receiver, hop.sender, header["round"]
                self.frames.setdefault(key, []).append(bytes(content))
        return await super().deliver(hop, content)


@pytest.mark.wide
def test_sites_run_as_the_simulation():
    network = diamond.network.ring(4)
    method = build_algorithm("gt_sgd")
    with without_optimizations(), jax.enable_x64(True):
        members = team(True, network)
        problem, masked = quad(agents=4), network.masked()
        wanted = final_progress(problem, masked, method, ROUNDS).state
        problems = [member.problem for member in members]
        found_states = stack_states(rehearse(problems, masked, method, ROUNDS))
        np.testing.assert_allclose(flat(found_states.x), flat(wanted.x), rtol=1e-11, atol=1e-12)


@pytest.mark.wide
def test_kills_at_any_instant_give_the_same_bits_and_never_a_mask_twice(tmp_path, monkeypatch):
    undisturbed = Cluster(tmp_path / "a", agents=team()).run()
    cluster = Cluster(tmp_path / "b", agents=team())
    cluster.wire = Wire()
    with all_killed_every(monkeypatch, cluster, 60):
        restarted = cluster.run()
    assert cluster.deaths >= 4
    assert all(same_bits(a, b) for a, b in zip(undisturbed, restarted, strict=True))
    frames = cluster.wire.frames
    pairs = [(j, i) for j in range(4) for i in range(4) if i != j]
    assert set(frames) == {(j, i, t) for j, i in pairs for t in range(ROUNDS)}
    assert all(len(set(contents)) == 1 for contents in frames.values())  # resent: the same bits
    assert max(map(len, frames.values())) > 1
    words = {content for contents in frames.values() for content in contents}
    assert len(words) == len(frames)  # no two receivers or rounds get the same


def test_masks_cancel_in_the_sum_and_only_there():
    masks = agree(make_masks())
    for receiver in range(4):
        senders = [j for j in range(4) if j != receiver]
        words = [masked_words(masks, j, receiver, 5, message(j)) for j in senders]
        weight = masks[senders[0]]._weights[receiver]
        plain = [
            [fixed_point.multiply(fixed_point.to_words(a, 2.0**20), weight) for a in message(j)]
            for j in senders
        ]
        for k in range(len(words[0])):
            total = sum(part[k] for part in words)
            np.testing.assert_array_equal(total, sum(part[k] for part in plain))
            for a in range(3):
                assert not (words[a][k] == plain[a][k]).any()
                assert not (words[a][k] + words[a - 1][k] == plain[a][k] + plain[a - 1][k]).any()


def test_a_single_message_looks_uniform_and_without_masks_it_does_not(monkeypatch):
    masks, spec = agree(make_masks()), team()[0].plain_layout_at(0)[0]
    large = (spec._replace(shape=(20_000,)),)
    monkeypatch.setattr(Agent, "plain_layout_at", lambda agent, t: large)
    random = np.random.default_rng(0)
    for arrays in ([random.normal(size=20_000)], [np.zeros(20_000)], [np.full(20_000, 0.5)]):
        arrays = [arrays[0].astype(spec.dtype)]
        frame = encode(Envelope(RUN, 0, 3), arrays)
        read = lambda receiver, t, frame: decode(
            masks[0].mask_frame(receiver, t, frame),
            Envelope(RUN, 0, t),
            (large[0]._replace(dtype="uint64"),),
        )[0]
        first = read(1, 3, frame)
        masks[0]._message = None
        later = read(1, 4, encode(Envelope(RUN, 0, 4), arrays))
        masks[0]._message = None
        other = read(2, 3, frame)
        for words in (first, later - first, other - first, first + other):
            assert uniformity(words) > SIGNIFICANCE
        plain = fixed_point.multiply(fixed_point.to_words(arrays[0], 2.0**20), masks[0]._weights[1])
        assert uniformity(plain) < SIGNIFICANCE
        masks[0]._message = None


def test_a_keystream_is_that_of_its_key_and_exchange():
    key = bytes(range(16))
    words = keystream(key, 7, bytes(800))
    np.testing.assert_array_equal(words, keystream(key, 7, bytes(2400))[:100])
    for other in (keystream(key, 8, bytes(800)), keystream(bytes(16), 7, bytes(800))):
        assert not (words == other).any()
    # the 2^64 blocks of an exchange do not reach those of the next one
    assert not set(words.tolist()) & set(keystream(key, 8, bytes(80_000)).tolist())


def test_a_receiver_cannot_replace_the_keys_that_it_passes_on(tmp_path):
    """Receiver 1 of a path of three stands between 0 and 2."""
    bundles = found(tmp_path, {0, 1, 2})
    groups = {0: {1: (0, 2)}, 1: {0: (1,), 2: (1,)}, 2: {1: (0, 2)}}
    keys = {
        i: MaskKeys(i, RUN, groups[i], SiteIdentity(Credentials(bundle)))
        for i, bundle in enumerate(bundles)
    }
    other_run = MaskKeys(0, "another", groups[0], SiteIdentity(Credentials(bundles[0])))
    for one in (*keys.values(), other_run):
        one.open(is_resumed=False)
    receiver = keys[1]
    for j in (0, 2):
        receiver.add_record(j, keys[j].record)
    keys[2].add_group(1, receiver.passed_records(2, keys[2].public_key))
    keys[0].add_group(1, receiver.passed_records(0, keys[0].public_key))
    assert keys[0].pair_key(1, 2) == keys[2].pair_key(1, 0)
    own = receiver.record  # signed by the receiver, as if it were of site 0
    forged = SiteIdentity(Credentials(bundles[1])).sign(keys[0]._content(0, receiver.public_key))
    damaged = keys[0].record.replace(keys[0].public_key, receiver.public_key)
    for record, words in (
        (own, "in the name of site0"),
        (forged, "in the name of site0"),
        (damaged, "did not sign"),
        (other_run.record, "another run or site"),
    ):
        with pytest.raises(Refused, match=words):
            keys[2].add_group(1, [[0, record]])
    for records in ([], [[0, keys[0].record], [1, own]], [[1, own]], None, [[0, 5]], [1, 2]):
        with pytest.raises(FrameError):
            keys[2].add_group(1, records)
    lost = MaskKeys(2, RUN, groups[2], SiteIdentity(Credentials(bundles[2])))
    with pytest.raises(Refused, match="folder was lost or replaced"):
        receiver.passed_records(2, lost.public_key)


def test_keys_are_private_to_the_folder_and_the_same_after_a_restart(tmp_path):
    first = agree(make_masks(tmp_path))
    for one in first:
        one.keys.save()
    path = tmp_path / "0" / KEY_FILE
    assert path.stat().st_mode & 0o077 == 0
    again = make_masks(tmp_path)[0]
    again.open(is_resumed=True)
    assert again.keys.is_complete and again.keys.pair_key(1, 2) == first[0].keys.pair_key(1, 2)
    assert again.keys.pair_key(1, 2) not in (again.keys.pair_key(1, 3), again.keys.pair_key(2, 1))
    with pytest.raises(OtherRun, match="missing or of another run"):
        make_masks(tmp_path, "other run")[0].open(is_resumed=True)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(OtherRun, match="damaged"):
        make_masks(tmp_path)[0].open(is_resumed=True)


def test_numbers_beyond_the_limit_stop_the_site_with_a_reason(tmp_path):
    masks = agree(make_masks())
    for scale in (1e9, np.nan, np.inf):
        with pytest.raises(LimitExceeded, match="above the limit of masked sums"):
            masks[0].prepare(0, message(0, scale=scale))


def test_the_disagreement_is_that_of_the_weighted_mean():
    (agent, *_), masks = team(), agree(make_masks())
    arrays = {j: masked_words(masks, j, 0, 0, message(j)) for j in (1, 2, 3)} | {0: message(0)}
    progress = agent.initial_progress()
    expected = agents_change(agent, [message(j) for j in range(4)])
    assert disagreement(agent, [arrays], progress) == pytest.approx(expected, rel=1e-5)


def agents_change(agent, messages):
    decoded = [agent.unflatten_message(arrays).average for arrays in messages]
    x = [np.concatenate([np.ravel(a) for a in jax.tree.leaves(average)]) for average in decoded]
    row = agent.network.matrix[0]
    return float(np.sum((sum(w * a for w, a in zip(row, x)) - x[0]) ** 2))


def test_sites_without_masks_have_another_network():
    agent, plain = team()[0], team(False)[0]
    assert describe_differences(compute_digests(agent, 3), compute_digests(plain, 3)) == (
        "another network"
    )


def test_a_site_that_lost_its_folder_is_refused(tmp_path):
    """Site 0 comes back with a new key, where the others have its old one."""

    async def everyone(numbers):
        wire = InProcessNetwork()
        for agent in team():
            place = tmp_path / str(agent.number)
            node = Node(agent, ROUNDS, wire.transport(agent.number), place, 2, LIMITS, run_inline)
            wire.nodes[agent.number] = node
        runs = [asyncio.ensure_future(wire.nodes[i].run()) for i in numbers]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        done = [task for task in runs if task.done()]
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        wire.close()
        return done

    masks = agree(make_masks(tmp_path, compute_digests(team()[0], ROUNDS)["run"]))
    for one in masks:
        one.keys.save()
    (tmp_path / "0" / KEY_FILE).unlink()
    (task,) = run_simulated(everyone([0, 1, 2, 3]))
    with pytest.raises(Refused, match="folder was lost or replaced"):
        task.result()


def test_sites_over_tls_agree_on_keys_and_end_in_the_same_bits(tmp_path):
    network = NETWORK.masked()
    sites = {f"site{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports(4))}
    places = certificate_authority.create_federation(tmp_path / "all", "trial", sites, network)
    bundles = [roster.load_bundle(place) for place in places.values()]
    seen = []

    async def run_site(bundle):
        credentials, agent = Credentials(bundle), team()[bundle.me.number]
        async with RpcClient(
            credentials, max_frame_bytes(agent.largest_layout), SHORT_TIMEOUTS
        ) as client:
            identity, folder = SiteIdentity(credentials), tmp_path / bundle.me.name
            fixed = agent, ROUNDS, client, folder, 2, SHORT_TIMEOUTS
            node = Node(*fixed, identity=identity)
            decode_message = node.client.decode_message

            def record(j, t, content, *more):
                seen.append((j, t, bytes(content)))
                return decode_message(j, t, content, *more)

            node.client.decode_message = record
            async with Server(credentials, node.answer_request, client=client):
                return await node.run()

    async def everyone():
        return await asyncio.gather(*map(run_site, bundles))

    ends = asyncio.run(everyone())
    expected = Cluster(tmp_path / "one process", agents=team()).run()
    assert all(same_bits(a, b) for a, b in zip(ends, expected, strict=True))
    messages = [content for _, t, content in seen if t < ROUNDS]
    assert len(messages) == len(set(messages)) == 12 * ROUNDS
