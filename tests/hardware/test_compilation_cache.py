"""Compiling: kept for the next process, told while it goes on, what measures beside the rounds."""

import os
import subprocess
import sys
import threading

from fast_compilation import skip_measures, without_optimizations
from helpers import ESTIMATORS, build, quad, ring

import diamond
from diamond.cli import progress_bars
from diamond.hardware import compilation_cache
from diamond.hardware.device_memory import MemoryBoundedProgram

SCRIPT = """
import jax, sys
before = jax.jit(lambda a: a + 1)(1.0)  # JAX has settled by now that there is no cache
import diamond
made = diamond.gallery.quadratic(agents=2, upper=1, lower=1, rows=2)
print(jax.config.jax_compilation_cache_dir)
"""

# What the tests keep themselves, and from how many seconds on.
OF_THE_TESTS = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")


def in_python(tmp_path, **env):
    env = {"XDG_CACHE_HOME": str(tmp_path), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **env}
    ours = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS}
    words = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(words, env=ours | env, capture_output=True, text=True, check=True)
    assert not result.stderr, result.stderr
    return result.stdout.strip()


def test_programs_are_kept_unless_one_variable_says_otherwise(tmp_path):
    assert in_python(tmp_path) == "None" and not any(tmp_path.iterdir())  # off, for all tests
    cache_folder = tmp_path / "diamond" / "xla"
    assert in_python(tmp_path, **{compilation_cache.VARIABLE: ""}) == str(cache_folder) and any(
        cache_folder.iterdir()
    )
    names = {path.name for path in cache_folder.iterdir()}
    assert in_python(tmp_path, **{compilation_cache.VARIABLE: str(cache_folder)}) == str(
        cache_folder
    )
    assert {path.name for path in cache_folder.iterdir()} == names  # all were found


def test_a_home_that_cannot_be_written_to_is_no_trouble(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(compilation_cache.VARIABLE, str(tmp_path / "file" / "cache"))
    compilation_cache.enable_compile_cache()
    assert compilation_cache._enabled == []


def test_what_was_used_longest_ago_goes_first(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(b"0" * 100)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - 10 * age))
    os.utime(tmp_path / "d", (2e9, 1e8))  # the oldest, and read since
    compilation_cache.prune(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "d"]
    compilation_cache.prune(tmp_path, 250)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_measures_is_compiled_beside_the_rounds_and_said(monkeypatch):
    """The background thread has it before the first evaluation asks; nothing is compiled twice."""
    skip_measures(monkeypatch)
    begun, fitted = [], []
    begin, fit = MemoryBoundedProgram.start_compiling, MemoryBoundedProgram._fit_group_size

    def spied(self, *arguments, **options):
        begun.append(self.work)
        begin(self, *arguments, **options)

    def fits(self, arguments, options, compiling):
        fitted.append((self.work, compiling is not None))
        return fit(self, arguments, options, compiling)

    monkeypatch.setattr(MemoryBoundedProgram, "start_compiling", spied)
    monkeypatch.setattr(MemoryBoundedProgram, "_fit_group_size", fits)
    stages = []
    options = dict(alpha=0.05, beta=0.2, batch=3, hypergradient=ESTIMATORS["exact"])
    with without_optimizations():
        run = diamond.simulate(quad(), ring(4), build("dsgd", **options), 3, on_stage=stages.append)
    assert stages == ["compiling", "running"]
    assert begun == ["a measurement on all rows"]
    assert fitted == [("a round", False), ("a measurement on all rows", True)]
    assert run.compile_seconds > 0 and threading.active_count() < 20


def test_lines_say_what_goes_on_before_the_first_evaluation(capsys):
    board = progress_bars.LineDisplay(["a"], 10)
    board.begin("a", 10)
    for stage in ("compiling", "running"):
        board.stage("a", stage)
    text = capsys.readouterr().err
    assert "a: compiling ..." in text
    assert "running" not in text and board.rows["a"].status == "running"
