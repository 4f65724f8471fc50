"""Damaged files of a site: they are refused or set aside by name, and nothing is lost."""

import json
import shutil

import pytest
from crash_cluster import Cluster, team
from fast_compilation import without_optimizations

from diamond.records import checkpoint_file
from diamond.records.folder_writer import Writer
from diamond.records.manifest import RunOrigin
from diamond.sites.memory import site_checkpoint
from diamond.sites.memory.edge_journal import DamagedJournal, EdgeJournal
from diamond.sites.memory.frame_log import LENGTH
from diamond.sites.memory.outbox import Outbox
from diamond.sites.memory.site_checkpoint import OtherRun
from diamond.sites.memory.site_run_folder import SiteRunFolder
from diamond.sites.rounds.node import Node
from diamond.sites.transport.in_process_transport import InProcessNetwork
from diamond.sites.transport.messages import DOWN, UP


def written(folder, rounds=6):
    """A journal of so many rounds, and where each of its entries begins."""
    journal, starts = EdgeJournal([1], "run", folder), []
    path = folder / "0000000000.log"
    for t in range(rounds):
        starts.append(path.stat().st_size if path.exists() else 0)
        journal.write(1, t, DOWN if t == 2 else UP, b"DMND message %d" % t)
    journal.close()
    return path, starts


def restored(folder):
    journal = EdgeJournal([1], "run", folder)
    try:
        journal.restore(0)
        return [journal.edge_vote(1, t) for t in range(6)]
    finally:
        journal.close()


def test_a_flipped_bit_anywhere_in_a_journal_is_refused_and_named(tmp_path):
    path, starts = written(tmp_path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        begin = max(start for start in starts if start <= place)
        if begin == starts[-1] and place < begin + LENGTH.size:
            continue  # the length of the last one: as if it had been cut short
        with pytest.raises(DamagedJournal, match=rf"{path.name} is damaged at byte {begin}, "):
            restored(tmp_path)
        assert path.stat().st_size == len(whole)  # nothing was cut


def test_only_the_end_of_the_last_file_may_be_torn(tmp_path):
    path, starts = written(tmp_path)
    whole = path.read_bytes()
    for cut in range(starts[-1] + 1, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert restored(tmp_path) == [UP, UP, DOWN, UP, UP, ""]
        assert path.stat().st_size == starts[-1]
    path.write_bytes(whole[: starts[-1]] + bytes(50))  # room that was made, and never written
    assert restored(tmp_path) == [UP, UP, DOWN, UP, UP, ""]
    path.write_bytes(whole[:-1])
    (tmp_path / "0000000009.log").write_bytes(b"")
    with pytest.raises(DamagedJournal, match="damaged at byte"):
        restored(tmp_path)


def test_a_site_without_its_checkpoints_is_refused_before_it_writes(tmp_path, monkeypatch):
    with without_optimizations():
        Cluster(tmp_path).run()
        shutil.rmtree(tmp_path / "1")
        again, looked = Cluster(tmp_path), []
        monkeypatch.setattr(again, "record_outbox", lambda node: looked.append(node.agent.number))
        message = r"agent 1 leads to round 0, but it has been at round [1-7], and agent [02] keeps"
        with pytest.raises(OtherRun, match=message):
            again.run()
    assert 1 not in looked and not (tmp_path / "1" / "checkpoint").exists()


ODD = [b"", b"{", b"[]", b'{"run": "r"}', b'{"run": "r", "neighbours": 3}']


@pytest.mark.parametrize("content", ODD)
def test_a_damaged_record_of_finished_neighbours_is_set_aside(tmp_path, caplog, content):
    site_checkpoint.record_finished(tmp_path, "r", {1, 2})
    assert site_checkpoint.load_finished(tmp_path, "r") == {1, 2}
    (tmp_path / "finished.json").write_bytes(content)
    assert site_checkpoint.load_finished(tmp_path, "r") == set()
    assert (tmp_path / "finished.json.damaged-1").read_bytes() == content
    assert "finished.json is damaged" in caplog.text and "must be started again" in caplog.text


@pytest.mark.parametrize(
    "kind", ["checkpoint/*.json", "checkpoint/*.safetensors", "messages/*.log"]
)
def test_a_damaged_newest_checkpoint_is_logged_with_its_consequence(tmp_path, caplog, kind):
    with without_optimizations():
        Cluster(tmp_path).run()
        folder, agent = tmp_path / "1", team()[1]
        run = json.loads((folder / "finished.json").read_bytes())["run"]
        newest = max(folder.glob(kind))
        content = newest.read_bytes()
        newest.write_bytes(content[: len(content) // 2])
        store = Outbox(agent.neighbours)
        found = site_checkpoint.restore(folder, run, agent.initial_progress(), store)
        before = checkpoint_file.saved_rounds(folder / "checkpoint")[-1]
    assert found.clock == before < int(newest.name[:10])
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(newest.with_suffix("")) in line and "damaged-1" in line
    assert f"the run resumes from the checkpoint of round {before}" in line


def test_damaged_lines_of_metrics_and_a_missing_manifest_are_logged(tmp_path, caplog):
    agent, origin = (
        team()[0],
        RunOrigin("north", "trial", "quadratic", "gt_sgd", "GT-SGD", {}, "", {}),
    )
    with Writer(tmp_path) as writer, without_optimizations():
        for round in range(3):
            writer.metrics.append({"round": round, "seconds": 0.0, "waited": 0.0}, {})
        path = writer.metrics.path
        path.write_bytes(path.read_bytes().replace(b'"round": 2', b'"round": @', 1))
        node = Node(agent, 7, InProcessNetwork().transport(0), every=1)
        SiteRunFolder(writer, node, origin, "")._open_folder(agent.initial_progress()._replace(t=2))
    assert "metrics.jsonl has damaged lines; a copy is in metrics.jsonl.damaged-1" in caplog.text
    assert "measurements of those rounds are lost, the run itself is not" in caplog.text
    assert "manifest.json is missing" in caplog.text and "written again" in caplog.text
    caplog.clear()
    with Writer(tmp_path) as writer, without_optimizations():
        SiteRunFolder(writer, node, origin, "")._open_folder(agent.initial_progress()._replace(t=2))
    assert "metrics.jsonl lacks round 2" in caplog.text


def test_a_damaged_manifest_is_set_aside_and_rewritten(tmp_path, caplog):
    agent, origin = (
        team()[0],
        RunOrigin("north", "trial", "quadratic", "gt_sgd", "GT-SGD", {}, "", {}),
    )
    (tmp_path / "manifest.json").write_text('{"status": "run')
    with Writer(tmp_path) as writer, without_optimizations():
        writer.metrics.path.write_bytes(b"")
        diary = SiteRunFolder(writer, Node(agent, 7, InProcessNetwork().transport(0)), origin, "")
        diary._open_folder(agent.initial_progress()._replace(t=2))
        assert writer.update_manifest()["site"] == {"name": "north", "agent": 0}
    assert (tmp_path / "manifest.json.damaged-1").read_text() == '{"status": "run'
    assert "manifest.json is damaged" in caplog.text
