"""Signed messages: who tells different neighbours different things is proven to do so."""

import json
from functools import cache

import numpy as np
import pytest
from crash_cluster import ROUNDS, Cluster, all_killed_every
from fast_compilation import skip_loss_checks
from helpers import quad, same_bits
from lockstep_agents import agents, build_algorithm
from two_faced_site import TwoFaced, found_signers, signing

import diamond
from diamond.peers.equivocation_proof import PROOF_FOLDER, BadProof, read_proof

LIAR = 2


@cache
def team(graph, size):
    with pytest.MonkeyPatch.context() as patch:
        skip_loss_checks(patch)
        problem = quad(agents=size)
    network = getattr(diamond.network, graph)(size)
    return network, agents(problem, network, build_algorithm("dsgd", order="paper"))


def run(folder, graph="complete", size=4, kind=None, signed=True):
    network, members = team(graph, size)
    signers, ca = found_signers(folder / "federation", network) if signed else ({}, b"")
    kinds = {LIAR: kind} if kind else {}
    cluster = Cluster(folder, agents=members, kinds=kinds, sign=signing(signers))
    return cluster.run(), ca


def proofs(folder, ca):
    """The proofs of every site: site to what it proves."""
    found = {}
    for path in sorted(folder.glob(f"[0-9]/{PROOF_FOLDER}/*.json")):
        found.setdefault(int(path.parts[-3]), []).append(read_proof(path, ca))
    return found


def test_honest_sites_compute_the_same_bits_and_accuse_nobody(tmp_path):
    signed, ca = run(tmp_path / "signed")
    plain, _ = run(tmp_path / "plain", signed=False)
    assert all(same_bits(a.state, b.state) for a, b in zip(signed, plain))
    assert not proofs(tmp_path / "signed", ca)
    assert not list((tmp_path / "plain").rglob("signed.record"))


@pytest.mark.parametrize(("graph", "size"), [("complete", 4), ("ring", 5)])
def test_every_honest_site_gets_a_proof(tmp_path, graph, size, caplog):
    neighbours = team(graph, size)[0].graph.neighbors(LIAR)
    kind = type("Liar", (TwoFaced,), {"victims": (min(neighbours),)})
    _, ca = run(tmp_path, graph, size, kind)
    found = proofs(tmp_path, ca)
    assert {*found} == {*range(size)} - {LIAR}
    for ((proof, first_exchange),) in found.values():
        assert proof.site == f"site{LIAR}" and proof.first.exchange == TwoFaced.first
        assert TwoFaced.first < first_exchange < ROUNDS
    assert "told different neighbours different things in round 1" in caplog.text
