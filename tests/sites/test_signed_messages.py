"""Signed messages: who tells different neighbours different things is proven to do so."""

from functools import cache

import numpy as np
import pytest
from crash_cluster import Cluster, all_killed_every
from fast_compilation import skip_loss_checks
from helpers import quad, same_bits
from lockstep_agents import agents, build_algorithm
from two_faced_site import TwoFaced, found_signers, signing

import diamond
from diamond.sites.memory.outbox import Receipt, Receipts
from diamond.sites.memory.sent_record import RECORD_FILE, SentBefore, SentRecord
from diamond.sites.transport import wire_format
from diamond.sites.transport.audit import Audit
from diamond.sites.transport.reachability import all_neighbours
from diamond.sites.transport.wire_format import Envelope, FrameError, layout_of
from diamond.sites.trust.equivocation_proof import (
    PROOF_FOLDER,
    BadProof,
    EquivocationProof,
    check_proof,
    read_proof,
    write_proof,
)
from diamond.sites.trust.signed_messages import SignedMessages
from diamond.sites.trust.signed_records import digest_of

LIAR, RUN, OTHER_RUN = 2, "ab" * 32, "cd" * 32
MESSAGE = [np.arange(6.0, dtype=np.float32).reshape(2, 3), np.ones(2)]


@cache
def team(graph, size):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=size)
    network = getattr(diamond.network, graph)(size)
    return network, agents(problem, network, build_algorithm("dsgd", order="paper"))


def make_cluster(folder, graph="complete", size=4, kind=None, signed=True):
    network, members = team(graph, size)
    signers, ca = found_signers(folder / "federation", network) if signed else ({}, b"")
    kinds = {LIAR: kind} if kind else {}
    return Cluster(folder, agents=members, kinds=kinds, sign=signing(signers)), ca


def proofs(folder, ca):
    """The proofs of every site, with the exchange from which on it leaves the liar out."""
    found = {}
    for path in sorted(folder.glob(f"[0-9]/{PROOF_FOLDER}/*.json")):
        found.setdefault(int(path.parts[-3]), []).append(read_proof(path, ca))
    return found


def test_honest_sites_compute_the_same_bits_and_accuse_nobody(tmp_path):
    cluster, ca = make_cluster(tmp_path / "signed")
    signed = cluster.run()
    plain = make_cluster(tmp_path / "plain", signed=False)[0].run()
    assert all(same_bits(a.state, b.state) for a, b in zip(signed, plain, strict=True))
    assert not proofs(tmp_path / "signed", ca)


@pytest.mark.wide
@pytest.mark.parametrize(("graph", "size", "within"), [("complete", 4, 1), ("ring", 5, 3)])
def test_one_lie_to_one_neighbour_gives_every_honest_site_a_proof(
    tmp_path, graph, size, within, caplog
):
    victim = min(team(graph, size)[0].graph.neighbors(LIAR))
    deceives = lambda self, j, t: (j, t) == (victim, TwoFaced.first)
    kind = type("Liar", (TwoFaced,), {"deceives": deceives})
    cluster, ca = make_cluster(tmp_path, graph, size, kind)
    cluster.run()
    found = proofs(tmp_path, ca)
    assert {*found} == {*range(size)} - {LIAR}
    for ((proof, first_exchange),) in found.values():
        assert proof.site == f"site{LIAR}" and proof.first.exchange == TwoFaced.first
        assert first_exchange - 1 <= TwoFaced.first + within  # found in the exchange before
    assert "told different neighbours different things in round 1" in caplog.text


def test_later_messages_of_a_proven_liar_change_nothing(tmp_path):
    """Honest sites end with the same bits, whatever the liar says once it is out."""
    ends, first_exchanges = [], []
    for size in (1, 1e6):
        lie = lambda array, t, size=size: array + np.float32(1 if t < 4 else size)
        deceives = lambda self, j, t: j == 0 or t >= 4
        methods = {"lie": staticmethod(lie), "deceives": deceives}
        kind = type("Liar", (TwoFaced,), methods)
        cluster, ca = make_cluster(tmp_path / str(size), kind=kind)
        ends.append(cluster.run())
        entries = [entry for found in proofs(tmp_path / str(size), ca).values() for entry in found]
        first_exchanges += [first_exchange for _, first_exchange in entries]
    assert len(first_exchanges) == 6 and max(first_exchanges) <= 4
    honest = [i for i in range(4) if i != LIAR]
    assert all(same_bits(ends[0][i].state, ends[1][i].state) for i in honest)


@pytest.mark.wide
def test_sites_that_die_again_and_again_sign_nothing_twice(tmp_path, monkeypatch):
    """Restarted sites sign the same digests, with and without a liar: nobody else is accused."""
    undisturbed = make_cluster(tmp_path / "quiet")[0].run()
    cluster, ca = make_cluster(tmp_path / "honest")
    with all_killed_every(monkeypatch, cluster, 60):
        ends = cluster.run()
    assert cluster.deaths > 3 and not proofs(tmp_path / "honest", ca)
    assert all(same_bits(a.state, b.state) for a, b in zip(ends, undisturbed, strict=True))
    cluster, ca = make_cluster(tmp_path / "liar", kind=TwoFaced)
    with all_killed_every(monkeypatch, cluster, 60):
        cluster.run()
    found = proofs(tmp_path / "liar", ca)
    assert cluster.deaths > 3 and {*found} >= {0, 1, 3}
    assert {proof.site for ((proof, _),) in found.values()} == {f"site{LIAR}"}


@pytest.fixture(scope="module")
def signers(tmp_path_factory):
    network = diamond.network.complete(4)
    signers, ca = found_signers(tmp_path_factory.mktemp("federation"), network)
    other, _ = found_signers(tmp_path_factory.mktemp("other"), network, "other")
    return signers, other, ca, dict(enumerate(all_neighbours(network)))


def endpoint(signers, number, folder=None, run=RUN, lines=None, own=None, earlier=()):
    """The signed messages of a site, without anything else of it."""
    audit, names = Audit((lines if lines is not None else []).append), {}
    record = SentRecord(folder and folder / RECORD_FILE, run, "renew its keys")
    record.open()
    fixed = number, run, own or signers[0][number], signers[3], folder
    logs = record, Receipts(range(4)), audit, names
    options = {"round_of": lambda exchange: exchange, "earlier_folders": earlier}
    return SignedMessages(*fixed, *logs, **options)


def send(source, target, exchange, arrays=MESSAGE):
    envelope = Envelope(source.run, source.agent, exchange)
    frame = source.encode(envelope, arrays)
    return target.decode(frame, envelope._replace(run=target.run), layout_of(arrays))


def altered(arrays=MESSAGE):
    return [arrays[0] + 1, arrays[1]]


def liar_statements(signers, run=RUN, exchange=3):
    """What site 2 signs for site 0 and for site 1."""
    sign = lambda arrays: signers[0][LIAR].sign(run, exchange, 0, digest_of(*map(bytes, arrays)))
    return sign(MESSAGE), sign(altered())


def test_a_message_that_was_altered_on_its_way_is_refused(signers):
    source, target = endpoint(signers, 0), endpoint(signers, 1)
    assert all(map(np.array_equal, send(source, target, 0), MESSAGE))
    envelope = Envelope(RUN, 0, 1)
    frame = source.encode(envelope, MESSAGE)
    attached = wire_format.unpack(frame, 10**6)[0]["attached"]
    forged = wire_format.encode(envelope, altered(), lambda parts: attached)
    with pytest.raises(FrameError, match="its signature is not of this message"):
        target.decode(forged, envelope, layout_of(MESSAGE))
    with pytest.raises(FrameError, match="its statement has the certificate of another site"):
        target.decode(
            wire_format.encode(envelope._replace(sender=2), MESSAGE, lambda parts: attached),
            envelope._replace(sender=2),
            layout_of(MESSAGE),
        )
    with pytest.raises(FrameError, match="it is not signed"):
        target.decode(wire_format.encode(envelope, MESSAGE), envelope, layout_of(MESSAGE))
    with pytest.raises(FrameError, match="not of this federation's authority"):
        stranger = endpoint(signers, 0, own=signers[1][0])
        target.decode(stranger.encode(envelope, MESSAGE), envelope, layout_of(MESSAGE))
    with pytest.raises(FrameError, match="fields"):
        wire_format.decode(frame, envelope, layout_of(MESSAGE))


NOT_SIGNED = "agent 2 did not sign it"
FORGERIES = {  # what is said about them
    "altered digest": NOT_SIGNED,
    "altered signature": NOT_SIGNED,
    "another run": NOT_SIGNED,
    "relabelled run": NOT_SIGNED,
    "relabelled exchange": NOT_SIGNED,
    "relabelled consensus step": NOT_SIGNED,
    "relabelled version": "",  # no key of that version is known
    "signature of the accuser": NOT_SIGNED,
    "key of another federation": NOT_SIGNED,
}


def forgeries(signers):
    """Statements with which site 1 would like to accuse site 2, which told everyone the same."""
    true, _ = liar_statements(signers)
    other_run, _ = liar_statements(signers, run=OTHER_RUN)
    later = signers[0][LIAR].sign(RUN, 4, 0, digest_of(b"the message of exchange 4"))
    accusers = signers[0][1].sign(RUN, 3, 0, digest_of(b"never sent"))
    outsiders = signers[1][LIAR].sign(RUN, 3, 0, digest_of(b"never sent"))
    return {
        "altered digest": true._replace(digest=digest_of(b"never sent")),
        "altered signature": true._replace(
            digest=digest_of(b"never sent"), signature=true.signature[:-1] + b"\0"
        ),
        "another run": other_run._replace(digest=digest_of(b"another run")),
        "relabelled run": signers[0][LIAR].sign(OTHER_RUN, 3, 0, b"1" * 32)._replace(run=RUN),
        "relabelled exchange": later._replace(exchange=3),
        "relabelled consensus step": signers[0][LIAR]
        .sign(RUN, 3, 1, digest_of(b"a measurement"))
        ._replace(consensus_step=0),
        "relabelled version": signers[0][LIAR].sign(RUN, 3, 0, b"1" * 32)._replace(version=2),
        "signature of the accuser": accusers._replace(signer=LIAR),
        "key of another federation": outsiders,
    }


def accuse(signers, statement, folder, lines):
    """Site 0 gets the message of site 2, then `statement` about it from site 1."""
    victim, accuser = endpoint(signers, 0, folder, lines=lines), endpoint(signers, 1)
    send(endpoint(signers, LIAR), victim, 3)
    accuser._queue.append((statement, 0))
    send(accuser, victim, 4)
    return victim


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_false_accuser_proves_nothing_and_is_named(signers, tmp_path, kind):
    lines, (true, _) = [], liar_statements(signers)
    forgery = forgeries(signers)[kind]
    victim = accuse(signers, forgery, tmp_path / "run", lines)
    assert not victim.proven and not victim.is_out(LIAR, 10**6)
    assert lines == [f"agent 1: passed on a false statement: {FORGERIES[kind]}"] * bool(
        FORGERIES[kind]
    )
    _, identity = signers[0][LIAR].identify(signers[0][LIAR].certificate)
    path = write_proof(tmp_path, EquivocationProof("site2", identity, true, forgery), 4)
    with pytest.raises(BadProof, match=r"did not sign statement 2|differ in their (run|version)"):
        read_proof(path, signers[2])


def test_two_messages_of_different_runs_or_keys_prove_nothing(signers):
    """Both statements are truly signed, and both may be true."""
    first, _ = liar_statements(signers)
    _, other_run = liar_statements(signers, run=OTHER_RUN)
    _, identity = signers[0][LIAR].identify(signers[0][LIAR].certificate)
    assert identity.has_signed(other_run)
    with pytest.raises(BadProof, match="differ in their run"):
        check_proof(identity, first, other_run)
    other_key = liar_statements(signers)[1]._replace(version=2)
    with pytest.raises(BadProof, match="differ in their version"):
        check_proof(identity, first, other_key)
    assert first.slot != other_key.slot


def test_a_true_accuser_proves_it(signers, tmp_path):
    lines, (_, second) = [], liar_statements(signers)
    victim = accuse(signers, second, tmp_path, lines)
    assert victim.is_out(LIAR, 5) and not victim.is_out(LIAR, 4)
    (path,) = (tmp_path / PROOF_FOLDER).glob("*.json")
    proof, first_exchange = read_proof(path, signers[2])
    assert (proof.site, first_exchange) == ("site2", 5)
    again = endpoint(signers, 0, tmp_path)
    assert again.is_out(LIAR, 5) and not again.is_out(LIAR, 4)
    assert not endpoint(signers, 0, tmp_path, run=OTHER_RUN).proven
    third = endpoint(signers, 3)
    send(victim, third, 5)  # the proof goes on with the next message
    assert third.is_out(LIAR, 6)
    later = tmp_path / "epoch-9"  # after a change of members the liar stays out
    changed = endpoint(signers, 0, later, run=OTHER_RUN, earlier=[tmp_path])
    assert changed.is_out(LIAR, 0)
    stranger = endpoint(signers, 3, run=OTHER_RUN)
    assert all(map(np.array_equal, send(changed, stranger, 9), MESSAGE))
    assert not stranger.proven and not (later / PROOF_FOLDER).exists()


def test_a_site_never_signs_two_messages_of_one_exchange(signers, tmp_path):
    first = endpoint(signers, 0, tmp_path)
    first.encode(Envelope(RUN, 0, 0), MESSAGE)
    again = endpoint(signers, 0, tmp_path)
    again.encode(Envelope(RUN, 0, 0), MESSAGE)
    with pytest.raises(SentBefore, match=r"sent another message of round 0 of this run.*renew"):
        again.encode(Envelope(RUN, 0, 0), altered())
    again.encode(Envelope(RUN, 0, 0, 1), altered())  # a measurement before it
    endpoint(signers, 0, tmp_path, OTHER_RUN).encode(Envelope(OTHER_RUN, 0, 0), altered())


def test_a_neighbour_cannot_invent_a_message_that_a_site_has_signed(signers):
    lines, true = [], signers[0][0].sign(RUN, 3, 0, digest_of(b"sent"))
    site = endpoint(signers, 0, lines=lines)
    receipt = Receipt(3, 0, true.digest, true.version, true.signature)
    assert site.has_signed(1, receipt) and not lines
    assert not site.has_signed(1, receipt._replace(version=2))  # of another key of the site
    assert not site.has_signed(1, receipt._replace(digest=digest_of(b"never sent")))
    assert lines == ["agent 1: reports a message of this site that the site did not sign"]


def test_a_proof_needs_two_messages_of_one_exchange_and_a_certificate_of_the_authority(
    signers, tmp_path
):
    (first, second), later = liar_statements(signers), liar_statements(signers, exchange=4)[1]
    _, identity = signers[0][LIAR].identify(signers[0][LIAR].certificate)
    _, accuser = signers[0][1].identify(signers[0][1].certificate)
    write = lambda *statements, who=identity: write_proof(
        tmp_path, EquivocationProof("site2", who, *statements), 0
    )
    proof, _ = read_proof(write(first, second), signers[2])
    assert proof.describe().startswith("site2 signed two different messages as the message of exch")
    refused = {
        "both statements are about the same message": (first, first, identity),
        "differ in their exchange": (first, later, identity),
        "site1 did not sign statement 1": (first, second, accuser),
    }
    for reason, (*statements, who) in refused.items():
        with pytest.raises(BadProof, match=reason):
            read_proof(write(*statements, who=who), signers[2])
    other_ca = signers[1][0].bundle().ca
    with pytest.raises(BadProof, match="not of this federation's authority"):
        read_proof(write(first, second), other_ca)
    for content in (b"", b"[]", b"{}", b'{"format": "diamond proof of two messages, 1"}'):
        (tmp_path / "damaged.json").write_bytes(content)
        with pytest.raises(BadProof, match=r"damaged\.json"):
            read_proof(tmp_path / "damaged.json", signers[2])
