"""Stored messages: written once, bounded in number, and damage is detected."""

import os

import pytest
from crash_cluster import EVERY, ROUNDS, Cluster, team
from helpers import same_bits
from lockstep_agents import run_lockstep

from diamond.records import checkpoint_file
from diamond.records.checkpoint_file import DamagedCheckpoint
from diamond.sites.memory import message_store
from diamond.sites.memory.message_store import StoredMessage
from diamond.sites.memory.site_checkpoint import MESSAGE_FOLDER, STATE_FOLDER
from diamond.sites.transport.wire_format import Envelope, encode

VICTIM = 1


def frames(rounds):
    return {(t, 0): encode(Envelope("run", 0, t), []) for t in rounds}


def test_each_message_is_written_once_and_read_back(tmp_path):
    held = frames(range(3))
    places = message_store.save(tmp_path, 3, held)
    assert {key: place.read().tobytes() for key, place in places.items()} == held
    more = message_store.save(tmp_path, 5, places | frames([3, 4]))
    assert sorted(more) == [(3, 0), (4, 0)]  # the others are there
    counts = message_store.count_messages(places | more)
    assert counts == {"0000000003": 3, "0000000005": 2}
    assert message_store.load(tmp_path, 5, counts, "run") == (places | more, True)
    message_store.prune(tmp_path, {"0000000005"})
    assert [path.name for path in tmp_path.iterdir()] == ["0000000005.log"]
    # What went before is known not to be there, so that nobody waits for it.
    assert message_store.load(tmp_path, 5, counts, "run") == (more, False)


def test_a_flipped_bit_is_found(tmp_path):
    message_store.save(tmp_path, 2, frames(range(2)))
    counts = {"0000000002": 2}
    path = tmp_path / "0000000002.log"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedCheckpoint, match=r"0000000002.log: not what was written"):
            message_store.load(tmp_path, 2, counts, "run")
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedCheckpoint, match="1 messages where 2 were written"):
        message_store.load(tmp_path, 2, counts, "run")
    path.write_bytes(whole)
    with pytest.raises(DamagedCheckpoint, match="another run"):
        message_store.load(tmp_path, 2, counts, "other")


def test_checkpoints_hold_no_messages_and_disk_and_memory_are_bounded(tmp_path):
    seen = []

    class Watched(Cluster):
        def record_outbox(self, node):
            super().record_outbox(node)
            held = node.service.outbox.frames.values()
            folder = self.folder / str(node.agent.number) / MESSAGE_FOLDER
            files = len(list(folder.glob("*"))) if folder.exists() else 0
            seen.append((sum(not isinstance(one, StoredMessage) for one in held), files))

    found = Watched(tmp_path).run()
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team(), ROUNDS), strict=True))
    most, files = map(max, zip(*seen))
    assert most <= EVERY + 1 and 2 <= files <= 4
    saved = checkpoint_file.load_newest(tmp_path / str(VICTIM) / STATE_FOLDER)
    assert all(name.startswith(".") for name in saved.arrays) and saved.notes["messages"]


@pytest.mark.parametrize("whose", ["newest", "older"])
def test_one_damaged_file_of_messages_does_not_end_the_run(tmp_path, whose):
    """The newest is told again from the checkpoint before; of an older one nothing is wanted."""
    cluster, struck = Cluster(tmp_path), []
    record_outbox = cluster.record_outbox

    def strike(node):
        record_outbox(node)
        files = sorted((tmp_path / str(VICTIM) / MESSAGE_FOLDER).glob("*.log"))
        if node.agent.number == VICTIM and node.t == 5 and len(files) > 1 and not struck:
            path = files[-1] if whose == "newest" else files[0]
            struck.append(path)
            content = path.read_bytes()
            path.write_bytes(content[:-6] + bytes([content[-6] ^ 1]) + content[-5:])
            cluster.kill(VICTIM)

    cluster.record_outbox = strike
    found = cluster.run()
    assert struck and cluster.deaths == 1
    assert all(same_bits(a, b) for a, b in zip(found, run_lockstep(team(), ROUNDS), strict=True))
    assert os.listdir(tmp_path / str(VICTIM) / MESSAGE_FOLDER)
