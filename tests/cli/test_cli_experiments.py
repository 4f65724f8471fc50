"""The verbs that run and show experiments: what they print, write, and exit with."""

import os
import signal
import subprocess
import sys

import pytest
from commands import command, result
from fast_compilation import skip_loss_checks, without_optimizations
from tiny_experiment import TOML

from diamond.hardware import compilation_cache
from diamond.metrics import display as progress
from diamond.metrics.display import format_duration
from diamond.records.folder_reader import open_run

VERBS = (
    *("new", "check", "run", "compare", "resume", "show", "export", "list", "report", "live"),
    *("network", "data", "demo", "reproduce", "tune"),
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """In an empty folder, nothing kept in the user's cache, little to compile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    skip_loss_checks(monkeypatch)
    (tmp_path / "tiny.toml").write_text(TOML)
    with without_optimizations():
        yield tmp_path


def test_help_lists_every_verb_and_the_exit_codes():
    text = command("--help").output
    for verb in VERBS:
        assert f" {verb} " in text
        assert "Usage" in command(verb, "--help").output
    assert "2 bad input" in text and "3 a run" in text and "130 interrupted" in text


def test_help_waits_for_nothing_heavy():
    code = "import sys, diamond.cli; print({'jax', 'pydantic', 'numpy', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_shell_completes_verbs():
    env = os.environ | {"_DIAMOND_COMPLETE": "complete_bash", "COMP_WORDS": "diamond res"}
    env |= {"COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "diamond res"}
    code = "from diamond.cli import app; app(prog_name='diamond')"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["resume"]


def test_a_run_is_told_shown_listed_and_repeated(here):
    found = command("run", "tiny.toml")
    assert "1 run of 24 rounds" in found.stderr and "MB over the network" in found.stderr
    lines = [line for line in found.stderr.splitlines() if line.startswith("run=tiny ")]
    assert "round=0/24" in lines[0] and "round=24/24" in lines[-1]
    assert "folder: runs/tiny\n" in found.stdout
    digest = found.stdout.split("digest: ")[1].strip()
    shown = result("show", "runs/tiny")["runs"][0]
    assert shown["digest"] == digest and shown["status"] == "finished" and shown["round"] == 24
    listed = result("list")["runs"]
    assert [row["run"] for row in listed] == ["runs/tiny"]
    again = result("run", "runs/tiny/config.toml", "--out", "elsewhere")
    assert again["runs"][0]["digest"] == digest and again["folder"] == "elsewhere/tiny"
    other = result("run", "tiny.toml", "--set", "seed=3", "--quiet")
    assert other["folder"] == "runs/tiny-2" and other["runs"][0]["digest"] != digest
    assert command("run", "tiny.toml", "--quiet").stderr == ""
    assert "digest verified" in command("show", "runs/tiny", "--verify").stderr
    assert command("show", "runs", "--csv").stdout.count("\n") == 4
    assert command("show", "runs", "--latex").stdout.startswith("\\begin{tabular}{l")
    assert "elsewhere" not in command("list").stdout
    (here / "runs/tiny/metrics.jsonl").write_text('{"round": 0, "agents": {}}\n')
    assert "altered" in command("show", "runs/tiny", "--verify", code=1).stderr


def test_ctrl_c_saves_and_says_how_to_go_on(monkeypatch):
    whole = result("run", "tiny.toml")["runs"][0]
    real = progress.LineDisplay.progress

    def pressed(self, name, entries):
        real(self, name, entries)
        if entries[-1]["round"] == 9:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(progress.LineDisplay, "progress", pressed)
        found = command("run", "tiny.toml", code=130)
    assert "stopping at the next evaluation" in found.stderr
    assert "continue with:  diamond resume runs/tiny-2" in found.stderr
    assert result("show", "runs/tiny-2")["runs"][0]["status"] == "interrupted"
    after = result("resume", "runs/tiny-2")["runs"][0]
    assert after["digest"] == whole["digest"] and after["status"] == "finished"
    assert result("resume", "runs/tiny-2")["runs"][0]["digest"] == whole["digest"]


def test_a_comparison_prints_every_run_and_the_means():
    sets = ["--set", "seed=[0, 1]", "--set", "rounds=6"]
    found = command("compare", "tiny.toml", *sets)
    assert "seed0" in found.stdout and "seed1" in found.stdout
    assert "over the seeds:" in found.stdout and "±" in found.stdout
    shown = result("show", "runs/tiny")["runs"]
    assert [row["seed"] for row in shown] == [0, 1]
    means = result("show", "runs/tiny", "--seeds")["runs"]
    assert means[0]["seeds"] == 2
    assert "resume" not in found.output
    done = result("resume", "runs/tiny")["runs"]
    assert [row["digest"] for row in done] == [row["digest"] for row in shown]
    assert "use `diamond compare`" in command("run", "tiny.toml", *sets, code=2).stderr


def test_a_method_that_fails_is_reported_and_the_others_finish():
    """Three numbers of each message are sent, and that of D-SGD has two."""
    sets = 'network={graph = "ring", agents = 3, channel = {name = "top", terms = 3}}', "rounds=3"
    plain = 'name = "%s", batch = 2, alpha = 0.05, beta = 0.2, hypergradient = "exact"'
    methods = ", ".join(f"{{{plain % name}}}" for name in ("dsgd", "gt_sgd"))
    words = [word for one in (*sets, f"algorithm=[{methods}]") for word in ("--set", one)]
    found = command("compare", "tiny.toml", *words, code=1)
    message = "terms = 3, but a message has 2 numbers; take 2 or fewer"
    assert f"dsgd failed: ValueError: {message}" in found.stderr
    assert "1 finished; retry the others with:  diamond resume runs/tiny" in found.stderr
    assert "Traceback" not in found.output
    status = {row["run"]: row["status"] for row in result("show", "runs/tiny")["runs"]}
    assert status == {"dsgd": "interrupted", "gt_sgd": "finished"}
    assert message in command("resume", "runs/tiny", code=1).stderr
    assert f"1 mistake\n  dsgd: {message}" in command("check", "tiny.toml", *words, code=2).stderr


def test_divergence_has_its_own_exit_code():
    found = command("run", "tiny.toml", "--set", "algorithm.beta=50", code=3)
    assert "diverged in round" in found.stderr and "divide beta by" in found.stderr
    assert "\nDiverged in round" in found.stdout
    command("resume", "runs/tiny", code=3)  # it is over


def test_check_runs_nothing(here):
    found = result("check", "tiny.toml", "--set", 'network=["ring:3", "star:3"]')
    assert found["mistakes"] == [] and len(found["runs"]) == 2
    assert all(run["bytes"] > 0 and run["rounds_per_second"] > 0 for run in found["runs"])
    assert "no mistakes found; nothing was run" in command("check", "tiny.toml").stdout
    assert not (here / "runs").exists()


@pytest.mark.wide
def test_new_then_run_works_unchanged(here):
    assert command("new", "mine").stdout.split() == ["mine.toml", "mine.py"]
    assert "# Experiment. Run this file as it is" in (here / "mine.toml").read_text()
    found = result("run", "mine.toml", "--set", "rounds=50")["runs"][0]
    assert found["status"] == "finished" and 0 < found["error"] < 2
    first, *_, last = open_run(here / "runs" / "mine").lines
    assert last["metric"] < 0.5 * first["metric"] and "error" in first
    assert "exists already" in command("new", "mine", code=2).stderr


@pytest.mark.parametrize("words, message", [
    (("run", "none.toml"), "none.toml: 1 mistake\n  cannot be read: No such file"),
    (("check", "none.toml"), "cannot be read"),
    (("resume", "none"), "is no run: it contains neither config.toml nor experiment.toml"),
    (("show", "none"), "no run found"),
    (("report", "none"), "none"),
    (("run", "tiny.toml", "--set", "algorithm.alhpa=1"), "algorithm.alhpa: is no option of "
     "diamond; did you mean alpha?"),
    (("run", "tiny.toml", "--set", "rounds"), "write it as key=value"),
    (("network", "er:9,p=2"), "p is 2.0; an edge probability lies between 0 and 1"),
    (("network", "rign:9"), "no graph 'rign'; did you mean ring?"),
    (("data", "digit"), "no data set 'digit' and no such file; did you mean digits?"),
    (("data", "digits", "--partition", "dirichlet:a=1"), "partition.concentration: is missing"),
    (("data", "digits", "--agents", "5000"), "use at most 1797 agents"),
])  # fmt: skip
def test_bad_input_is_answered_in_plain_words(words, message):
    found = command(*words, code=2)
    assert message in found.stderr and "Traceback" not in found.output


def test_a_network_is_drawn_and_measured(here):
    pytest.importorskip("matplotlib")
    found = result("network", "ring:6,mixing=metropolis", "--picture", "ring.png")
    assert (found["agents"], found["edges"], found["diameter"]) == (6, 6, 3)
    assert found["lam"] == pytest.approx(2 / 3) and found["mixing"] == "metropolis"
    assert found["smallest_eigenvalue"] == pytest.approx(-1 / 3)
    assert found["symmetric"] and found["rows_sum_to_1"] and found["non_negative"]
    assert (here / "ring.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    text = command("network", "torus:3x3").stdout
    assert "torus(3, 3): 9 agents, 18 edges" in text and "symmetric: yes" in text


def test_data_says_where_they_are_and_who_gets_what(here, monkeypatch):
    monkeypatch.delenv("DIAMOND_DATA", raising=False)
    (here / "sets" / "a9a").mkdir(parents=True)
    for name in ("a9a", "a9a.t"):
        (here / "sets" / "a9a" / name).write_text("")
    found = result("data", "--folder", "sets")
    assert found["digits"] == "in the package" and found["a9a"].endswith("sets/a9a")
    dealt = result("data", "digits", "--agents", "4", "--partition", "by_label:shards=1")
    assert len(dealt["agents"]) == 4 and sum(map(sum, dealt["agents"])) == dealt["rows"] == 1797
    assert all(sum(count > 0 for count in own) <= 4 for own in dealt["agents"])
    assert "digits: 1,797 rows of 64 features" in command("data", "digits").stdout


def test_a_report_is_built_beside_the_run(here):
    command("run", "tiny.toml", "--quiet")
    path = here / command("report", "runs/tiny").stdout.strip()
    assert path == here / "runs/tiny/report.html"
    assert path.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    shown = result("report", "runs/tiny", "--out", "page.html")
    size = (here / "page.html").stat().st_size
    assert shown == {"report": "page.html", "bytes": size, "figures": []}
    pytest.importorskip("matplotlib")
    drawn = command("report", "runs/tiny", "--figures", "figures").stdout.split()
    assert drawn[1:] == ["figures/convergence.png", "figures/convergence.pdf"]
    assert (here / drawn[2]).read_bytes()[:5] == b"%PDF-"
    one = result("report", "runs/tiny", "--figures", "svg", "--format", "svg")["figures"]
    assert one == ["svg/convergence.svg"] and "<svg" in (here / one[0]).read_text()
    words = ("report", "runs/tiny", "--figures", "none", "--format", "gif")
    assert "no format 'gif'; there are png, pdf, svg" in command(*words, code=2).stderr
    assert not (here / "none").exists()


def test_the_live_table_has_a_row_a_run():
    board = progress.TableDisplay(["a", "b"], 100)
    entry = {"metric": 1.0, "upper_loss": 0.5, "consensus": 0.1, "samples": 64.0, "bytes": 2e6}
    board.begin("a", 100)
    assert board.cells("a", board.rows["a"])[1].startswith("starting")
    assert board.cells("b", board.rows["b"]) == ["b", "waiting"]
    board.progress("a", [entry | {"round": 0}])
    board.progress(
        "a", [entry | {"round": 0}, entry | {"round": 50, "metric": 0.01, "upper_loss": 0.4}]
    )
    *seen, pace, left, course = board.cells("a", board.rows["a"])
    assert seen == ["a", "50/100", "0.4", "0.01", "0.1", "64", "2"]
    assert float(pace.replace(",", "")) > 0 and left.endswith("s") and course == "█▁"
    board.end("a", {"status": "finished"})
    assert board.cells("a", board.rows["a"])[8] == "finished"


def test_sparklines_are_logarithmic_and_bounded():
    assert progress.sparkline([1000, 100, 10, 1]) == "█▆▃▁"
    assert progress.sparkline([1.0, 1.0]) == "▁▁"
    assert progress.sparkline([float("nan"), float("inf")]) == ""
    assert progress.sparkline([-1.0, 0.0, 1.0]) == "▁▅█"  # linear
    assert len(progress.sparkline(range(1, 1000))) <= progress.SPARK_WIDTH


@pytest.mark.parametrize("seconds, text", [
    (0.314, "0.31 s"), (12.4, "12 s"), (99.4, "99 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"),
])  # fmt: skip
def test_durations_are_formatted_for_people(seconds, text):
    assert format_duration(seconds) == text
