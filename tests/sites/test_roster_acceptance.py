"""Rosters that change members in mid-run: passed on by the sites, refused if not acceptable."""

import asyncio
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from changing_cluster import EVERY, ROUNDS, ChangingCluster, check_bits, simulate
from crash_cluster import LIMITS
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from federations import FEDERATION
from lockstep_agents import build_algorithm, with_own_rows
from typer.testing import CliRunner

from diamond import cli
from diamond.network import changing, path, ring
from diamond.sites.identity import roster
from diamond.sites.identity.certificate_authority import (
    create_federation,
    write_bundles,
)
from diamond.sites.identity.credentials import Credentials
from diamond.sites.identity.private_keys import BadBundle
from diamond.sites.identity.roster import (
    SIGNATURE_ALGORITHM,
    SignedRoster,
    load_bundle,
    load_signed_roster,
)
from diamond.sites.identity.roster_acceptance import RosterAcceptance, offer_roster, roster_epochs
from diamond.sites.identity.roster_changes import change_members
from diamond.sites.rounds.epoch_run import EpochRun, make_epoch_node
from diamond.sites.rounds.site_agent import Agent
from diamond.sites.transport.errors import Refused
from diamond.sites.transport.in_process_transport import run_inline, run_simulated
from diamond.sites.transport.wire_format import pack, unpack

NAMES = ["north", "south", "west", "east", "centre"]
JOIN, LEAVE = 8, 14
MEMBERS = {0: [0, 1, 2, 3], JOIN: [0, 1, 2, 3, 4], LEAVE: [0, 2, 3, 4]}
PLACES = {name: f"127.0.0.1:{4000 + i}" for i, name in enumerate(NAMES)}


def changes(leave=LEAVE):
    """The network of a run in which centre joins, and south leaves in round `leave`."""
    members = {0: [0, 1, 2, 3], JOIN: [0, 1, 2, 3, 4], leave: [0, 2, 3, 4]}
    return changing({t: ring(len(agents)) for t, agents in members.items()}, members=members)


CHANGES = changes()


def table(agents):
    return {"graph": "ring", "agents": agents}


def build(options):
    return ring(options["agents"])


def signed_rosters(folder, leave=LEAVE):
    """The federation's rosters 1, 2 and 3; the folder of the authority has the last."""
    sites = {name: PLACES[name] for name in NAMES[:4]}
    create_federation(folder, "trial", sites, ring(4), {"rounds": ROUNDS, "network": table(4)})
    rosters = [load_signed_roster(folder)[0]]
    sites |= {"centre": PLACES["centre"]}
    change_members(folder, sites, ring(5), table(5), JOIN)
    rosters.append(load_signed_roster(folder)[0])
    del sites["south"]
    change_members(folder, sites, ring(4), table(4), leave)
    return [*rosters, load_signed_roster(folder)[0]]


def write_roster(folder, signed):
    (folder / "roster.json").write_bytes(signed.content)
    (folder / "roster.sig").write_bytes(signed.signature)


class FederatedCluster(ChangingCluster):
    """Sites that learn of the changes by rosters, given to one of them in mid-run."""

    def __init__(self, folder, algorithm, deliveries=None, leave=LEAVE, **options):
        super().__init__(folder, algorithm, changes(leave), **options)
        self.rosters = signed_rosters(folder / "authority", leave)
        self.deliveries = deliveries or {}  # (agent, round) to the version of a roster
        self.acceptances, self.node_options = {}, {}
        for i, name in enumerate(NAMES):
            bundle = shutil.copytree(folder / "authority" / name, self.bundle(i))
            write_roster(bundle, self.rosters[1 if name == "centre" else 0])

    async def run_lives(self, number):
        """TLS admits a site that joins once its neighbours have the roster that lists it."""
        while number == 4 and not all(
            i in self.acceptances and self.acceptances[i].roster.version > 1 for i in (0, 3)
        ):
            await asyncio.sleep(0.01)
        return await super().run_lives(number)

    def bundle(self, number):
        return self.folder / f"bundle{number}"

    def make(self, number):
        bundle = load_bundle(self.bundle(number))
        epochs = roster_epochs(bundle.roster, build) or CHANGES.epochs[:1]

        def make_agent(epoch):
            fixed = with_own_rows(self.problem, number), (epoch or CHANGES.epochs[0]).network
            missing = self.node_options.get("missing", "wait")
            return Agent(*fixed, self.algorithm, number, epoch=epoch, missing=missing)

        transport = self.wire.transport(number)
        options = {"every": EVERY, "timeouts": LIMITS, "run_blocking": run_inline}
        options |= self.node_options
        make_node = make_epoch_node(make_agent, ROUNDS, transport, **options)
        site = EpochRun(number, epochs, ROUNDS, make_node, folder=self.folder / str(number))
        credentials = Credentials(bundle)
        fixed = credentials, self.bundle(number), site, transport, build
        acceptance = self.acceptances[number] = RosterAcceptance(*fixed)

        def attach(node):
            node.service.receive_roster, node.before_round = acceptance.receive, acceptance.pass_on
            node.service.offer_roster = None if node.edges is None else acceptance.offer

        attach(site.node)
        site.on_epoch = attach
        site.node.on_round = lambda progress: self.on_round(number, progress)
        return site

    def on_round(self, number, progress):
        if version := self.deliveries.pop((number, progress.t), None):
            self.deliver(number, self.rosters[version - 1])
        super().on_round(number, progress)

    def deliver(self, number, signed):
        """Hand a roster to a site as its operator does, by files."""
        write_roster(self.bundle(number), signed)
        bundle = load_bundle(self.bundle(number))
        self.acceptances[number].credentials.renew(bundle, signed)


@pytest.mark.wide(keep=["9-kills0"])
@pytest.mark.parametrize(
    ("last", "kills"),
    [
        (9, ((2, 3), (1, 4), (3, 5), (4, 8), (0, 9), (3, 14))),  # some right after they accept
        (4, ((0, 6), (2, 9))),  # both are known before the first one's round
        (8, ((3, 7),)),  # accepted after the last round of an epoch, by a neighbour of one behind
    ],
)
def test_a_roster_given_to_one_site_changes_the_members_of_all(tmp_path, last, kills):
    options = {"deliveries": {(2, 3): 2, (0, last): 3}, "kills": kills}
    cluster = FederatedCluster(tmp_path, build_algorithm("gt_sgd"), **options)
    found = cluster.run()
    assert [p.t for p in found] == [18, LEAVE, 18, 18, 18] and cluster.deaths == len(kills)
    check_bits(cluster, found)
    assert [load_bundle(cluster.bundle(i)).roster.version for i in range(5)] == [3] * 5


@pytest.fixture
def cluster(tmp_path):
    return FederatedCluster(tmp_path, build_algorithm("gt_sgd"))


def receive(acceptance, signed, sender=1):
    answer, _ = unpack(acceptance.receive(offer_roster(sender, signed)), 2**17)
    return answer.get("refused", answer["version"])


def test_rosters_that_are_refused(cluster):
    site, (first, second, third) = cluster.make(0), cluster.rosters
    acceptance = cluster.acceptances[0]
    forged = SignedRoster(second.content.replace(b'"from_round": 8', b'"from_round": 9'), second[1])
    with pytest.raises(Refused, match="not what the federation's authority signed"):
        receive(acceptance, forged)
    site.node.t = 8
    with pytest.raises(Refused, match="holds from round 8; this site is in round 8, too late"):
        receive(acceptance, second)
    site.node.t = 6
    with pytest.raises(BadBundle, match=r"too late for all sites to know: repeat .* after 9 that"):
        cluster.deliver(0, second)  # from the operator, two rounds more are needed on the ring
    write_roster(cluster.bundle(0), first)
    assert receive(acceptance, second) == 2 and site.end == JOIN
    assert receive(acceptance, second) == 2 and len(site.epochs) == 2  # a replay changes nothing
    assert receive(acceptance, first) == "roster 1 is older than 2, accepted here"
    assert receive(acceptance, third) == 3 and [e.from_round for e in site.epochs] == [0, 8, 14]


def test_an_answer_with_a_false_roster_is_asked_for_again(cluster):
    site = cluster.make(0)
    acceptance, answers = cluster.acceptances[0], [{"refused": "no", "roster": 7}, {"version": 1}]
    false = cluster.rosters[1]._replace(signature=cluster.rosters[2].signature)
    header, _ = unpack(offer_roster(1, false).encode(), 2**17)
    answers.insert(1, header | {"refused": "no"})

    class Neighbour:
        async def send_request(self, j, request):
            return pack(answers.pop(0))

    acceptance.transport = Neighbour()
    run_simulated(acceptance._pass_on_to(1, 1))
    assert not answers and acceptance.confirmed == {1: 1} and acceptance.roster.version == 1
    assert site.node.wait_records[1].attempts == 3


EPOCH_CHANGES = {
    "is out of order": {"from_round": 0},
    "in the roster is out of order": {"version": 9},
    "members that did not join": {"members": [0, 1, 2, 4, 3]},
    "has members that did not join": {"members": [0, 1, 2, 3, 7]},
    "rounds without members": {"members": []},
    "without its from_round": {"from_round": 8.5},
    "without its members": {"members": [0, 1, 2, 3, "4"]},
    "lists members that are in none": {"members": [0, 1, 2, 3]},
    "the members are": {"network": table(4)},
    "neighbours of": {"network": table(5) | {"graph": "path"}},
}


@pytest.mark.wide(
    keep=[
        "has members that did not join",
        "in the roster is out of order",
        "neighbours of",
        "rounds without members",
    ]
)
@pytest.mark.parametrize("reason", EPOCH_CHANGES)
def test_a_signed_roster_whose_epochs_contradict_it_is_refused(cluster, reason):
    """The authority has signed it, by mistake or by another program."""
    cluster.make(0)
    acceptance = cluster.acceptances[0]
    acceptance.build = lambda o: (path if o["graph"] == "path" else ring)(o["agents"])
    document = json.loads(cluster.rosters[1].content)
    document["epochs"][1] |= EPOCH_CHANGES[reason]
    with pytest.raises(Refused, match=reason):
        receive(acceptance, sign(cluster, document))
    assert acceptance.roster.version == 1


@pytest.mark.parametrize("change", [{"network": table(3)}, {"members": [0, 1, 2]}, {"version": 2}])
def test_a_roster_that_changes_the_first_epoch_is_refused(cluster, change):
    cluster.make(0)
    document = json.loads(cluster.rosters[1].content)
    document["epochs"][0] |= change
    with pytest.raises(Refused, match=r"first epoch of the roster is not|earlier rounds"):
        receive(cluster.acceptances[0], sign(cluster, document))


def sign(cluster, document):
    """Sign a roster as the authority."""
    content = json.dumps(document).encode()
    key = load_pem_private_key((cluster.folder / "authority" / "ca.key").read_bytes(), None)
    return SignedRoster(content, key.sign(content, SIGNATURE_ALGORITHM))


def test_the_highest_version_survives_a_restart(cluster):
    cluster.make(0)
    receive(cluster.acceptances[0], cluster.rosters[1])
    write_roster(cluster.bundle(0), cluster.rosters[0])  # as an old copy of the bundle has it
    site = cluster.make(0)
    assert cluster.acceptances[0].roster.version == 2 and site.end == JOIN
    refused = "roster 1 is older than 2, accepted here"
    assert receive(cluster.acceptances[0], cluster.rosters[0]) == refused


def test_a_bundle_that_cannot_be_written_runs_and_follows_no_change(cluster, monkeypatch):
    def replace_file(path, content):
        raise OSError("Read-only file system")

    monkeypatch.setattr(roster.checkpoint_file, "replace_file", replace_file)
    site = cluster.make(0)
    with pytest.raises(Refused, match=r"Read-only file system.*make the bundle writable"):
        receive(cluster.acceptances[0], cluster.rosters[1])
    assert len(site.epochs) == 1 and cluster.acceptances[0].roster.version == 1


def test_a_run_that_allows_no_change_refuses_the_roster(cluster):
    cluster.make(0)
    acceptance = cluster.acceptances[0]

    def check():
        raise ValueError("this method learns alpha")

    acceptance.check = check
    with pytest.raises(Refused, match="roster 2 cannot be followed: this method learns alpha"):
        receive(acceptance, cluster.rosters[1])
    assert load_bundle(cluster.bundle(0)).roster.version == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"from_round": 14}, "a change comes after round 14"),
        ({"from_round": 18}, "before round 18, the end"),
        ({"names": ["north", "south", "west", "east", "centre"]}, "then those that join"),
        ({"names": ["west", "north", "east", "centre"]}, "list those that stay in their order"),
        ({"names": ["new", "other"], "network": ring(2)}, "at least one must"),
        ({"names": ["north", "west"]}, "give as many"),
    ],
)
def test_changes_that_the_authority_does_not_sign(cluster, change, reason):
    places = PLACES | {"new": "127.0.0.1:9", "other": "127.0.0.1:8"}
    names = change.get("names", ["north", "west", "east", "centre"])
    sites = {name: places[name] for name in names}
    network, from_round = change.get("network", ring(4)), change.get("from_round", 16)
    with pytest.raises(ValueError, match=reason):
        change_members(cluster.folder / "authority", sites, network, table(4), from_round)


def test_another_roster_of_the_same_version_is_refused(cluster, tmp_path):
    cluster.make(0)
    acceptance = cluster.acceptances[0]
    receive(acceptance, cluster.rosters[1])
    roster = replace(acceptance.roster, relays={"hub": "127.0.0.1:7"})
    write_bundles(tmp_path / "authority", roster, {})
    with pytest.raises(Refused, match="another roster 2 was accepted"):
        receive(acceptance, load_signed_roster(tmp_path / "authority")[0])


def test_a_site_that_has_gone_is_removed_at_the_last_common_checkpoint(tmp_path):
    members = {0: [0, 1, 2, 3], 6: [0, 2, 3]}
    network = changing({0: ring(4), 6: ring(3)}, members=members)
    cluster = FederatedCluster(tmp_path, build_algorithm("gt_sgd"), kills=[(1, 8), (3, 7)])
    authority = tmp_path / "again"
    sites = {name: PLACES[name] for name in NAMES[:4]}
    terms = {"rounds": ROUNDS, "every": EVERY, "network": table(4)}
    create_federation(authority, "trial", sites, ring(4), terms)
    for i, name in enumerate(NAMES[:4]):
        shutil.rmtree(cluster.bundle(i))
        shutil.copytree(authority / name, cluster.bundle(i))
    del sites["south"]
    with pytest.raises(ValueError, match="checkpoints of every 3 rounds"):
        change_members(authority, sites, ring(3), table(3), 7, rewinds=True)
    change_members(authority, sites, ring(3), table(3), 6, rewinds=True)
    signed, _ = load_signed_roster(authority)
    run_lives = cluster.run_lives

    async def live(number):
        if number == 1:
            task = asyncio.ensure_future(run_lives(1))
            while not cluster.deaths or 1 in cluster.wire.nodes:
                await asyncio.sleep(0.1)
            task.cancel()
            return None
        return await run_lives(number)

    async def everyone():
        lives = [asyncio.ensure_future(live(number)) for number in range(4)]
        await asyncio.sleep(60)
        assert not any(task.done() for task in lives if task is not lives[1])  # all wait
        cluster.deliver(2, signed)
        return await asyncio.gather(*lives)

    found = run_simulated(everyone())
    cluster.network = network
    run = simulate(cluster)
    for i in members[6]:
        assert found[i].t == ROUNDS
        np.testing.assert_array_equal(found[i].state.x, np.asarray(run.last_x)[i])
        np.testing.assert_array_equal(found[i].state.u, np.asarray(run.state.u)[i])


def test_the_command_signs_a_change_and_names_mistakes(tmp_path):
    def write(names, rounds=60):
        text = FEDERATION.replace("ring:3", f"ring:{len(names)}")
        text = text.replace("rounds = 60", f"rounds = {rounds}")
        sites = "\n".join(f'{name} = "{PLACES[name]}"' for name in names)
        (tmp_path / "trial.toml").write_text(text + sites)

    command = lambda *words: CliRunner().invoke(cli.app, ["net", *map(str, words)])
    write(NAMES[:3])
    folder, file = tmp_path / "trial", tmp_path / "trial.toml"
    assert command("init", file, "--out", folder).exit_code == 0
    write(NAMES[:4], rounds=70)
    refused = command("change", folder, file, "--from-round", 20)
    assert refused.exit_code == 2 and "rounds" in refused.stderr
    write([*NAMES[1:3], NAMES[3]])
    late = command("change", folder, file, "--from-round", 60)
    assert late.exit_code == 2 and "before round 60, the end" in late.stderr
    signed = command("change", folder, file, "--from-round", 20, "--json")
    assert json.loads(signed.stdout) == {
        "version": 2,
        "bundles": {"east": str(folder / "east")},
        "leaving": ["north"],
    }
    roster = load_bundle(folder / "east").roster
    assert [epoch.members for epoch in roster.epochs] == [(0, 1, 2), (1, 2, 3)]
    write([NAMES[2], NAMES[3], NAMES[1]])
    again = command("change", folder, file, "--from-round", 30, "--rejoin", "south", "--json")
    bundles = {"south": str(folder / "south")}
    assert json.loads(again.stdout) == {"version": 3, "bundles": bundles, "leaving": []}
    assert load_bundle(folder / "south").roster.epochs[-1].members == (2, 3, 4)
