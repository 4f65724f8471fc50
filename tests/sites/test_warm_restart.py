"""Warm restart of a run in which a site has lost all its checkpoints."""

import shutil

import jax
import numpy as np
import pytest
from crash_cluster import ROUNDS, Cluster, Killed, team, watch_instants
from fast_compilation import without_optimizations
from lockstep_agents import run_lockstep

from diamond.records import checkpoint_file
from diamond.sites.memory.site_checkpoint import OtherRun
from diamond.sites.rounds import warm_restart

LOST = 1  # the one in the middle of the path


def lose(folder):
    """Damage every checkpoint of the site."""
    for path in (folder / str(LOST) / "checkpoint").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def stood(tmp_path_factory):
    """The folders of three sites that have run, one of which has lost its state; and their ends."""
    folder = tmp_path_factory.mktemp("stood")
    with without_optimizations():
        ends = Cluster(folder).run()
    lose(folder)
    return folder, ends


def again(stood, tmp_path):
    """The folders of a new run that begins where the old one stood."""
    shutil.copytree(stood[0], tmp_path, dirs_exist_ok=True)
    asides = [warm_restart.prepare_folder(tmp_path / str(i)) for i in range(3)]
    for aside in asides:
        assert len(checkpoint_file.saved_rounds(aside / "checkpoint")) == 2  # nothing is lost by it
    return tmp_path


def leaves(progress):
    return [np.asarray(leaf) for p in progress for leaf in jax.tree.leaves((p.state, p.spent))]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))


def expected(ends):
    """The run of agents that begin at those points, with messages handed over in memory."""
    points = [(p.state.x, p.state.y) for p in ends]
    mean = jax.tree.map(lambda *a: (a[0] + a[1]) / 2, points[0][0], points[2][0])
    points[LOST] = mean, team()[LOST].initial_progress().state.y
    starts = [agent.initial_progress_at(*point) for agent, point in zip(team(), points)]
    with pytest.MonkeyPatch.context() as patch:
        for agent, progress in zip(team(), starts):
            patch.setattr(agent, "initial_progress", lambda progress=progress: progress)
        return run_lockstep(list(team()), ROUNDS)


def test_a_warm_restart_starts_at_the_last_points_and_trackers_keep_their_sum(stood, tmp_path):
    with without_optimizations():
        found = Cluster(again(stood, tmp_path)).run()
        wanted = expected(stood[1])
    assert same(found, wanted)
    u = sum(np.asarray(p.state.memory.x, float) for p in found)
    p = sum(np.asarray(p.state.old.x, float) for p in found)
    np.testing.assert_allclose(u, p, atol=1e-6 * np.abs(p).max())
    assert not same(found, stood[1])


@pytest.mark.wide
@pytest.mark.parametrize("instant", [3, 25, 60])
def test_a_site_killed_on_the_way_ends_in_the_same_bits(stood, tmp_path, monkeypatch, instant):
    with without_optimizations():
        calm = Cluster(again(stood, tmp_path / "calm")).run()
        cluster, seen = Cluster(again(stood, tmp_path / "killed")), []

        def on_instant(agent, label):
            if agent == LOST:
                seen.append(label)
                if len(seen) == instant:
                    raise Killed

        with watch_instants(monkeypatch, on_instant):
            killed = cluster.run()
    assert cluster.deaths == 1 and same(calm, killed)


def test_without_a_warm_restart_the_error_suggests_one(stood, tmp_path):
    shutil.copytree(stood[0], tmp_path, dirs_exist_ok=True)
    with pytest.raises(OtherRun, match="start all sites with --onward"):
        Cluster(tmp_path).run()


def test_all_sites_must_use_the_warm_restart(stood, tmp_path):
    folder = again(stood, tmp_path)
    shutil.rmtree(folder / "2")  # begins anew
    with (
        without_optimizations(),
        pytest.raises(Exception, match=r"another start \(anew at|another start \(onward"),
    ):
        Cluster(folder).run()


def test_a_restart_point_that_is_damaged_or_of_another_problem_is_refused(stood, tmp_path):
    folder = again(stood, tmp_path) / "0"
    state = team()[0].initial_progress().state
    assert warm_restart.load_point(folder, state) is not None and warm_restart.is_warm_restart(
        folder
    )
    assert warm_restart.load_point(folder.parent / str(LOST), state) is None
    wrong = jax.tree.map(lambda a: np.zeros(a.size + 1, a.dtype), state)
    with pytest.raises(OtherRun, match="of another problem"):
        warm_restart.load_point(folder, wrong)
    (file,) = (folder / "start").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(OtherRun, match="again with --onward"):
        warm_restart.load_point(folder, state)
