"""One process compiles, the others wait for it, and none for one that is dead or hangs."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from diamond.hardware import compilation_cache, program_cache
from diamond.hardware.program_cache import compile_once


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "_enabled", [tmp_path])
    monkeypatch.setattr(program_cache, "_compiled", set())
    return tmp_path


def test_the_others_wait_for_the_first_and_then_all_go_at_once(folder):
    order, begun, end = [], threading.Event(), threading.Event()
    together = threading.Barrier(2, timeout=30)

    def first():
        begun.set()
        end.wait(30)
        order.append("first")

    def other():
        together.wait()  # both of them are inside
        order.append("other")

    threads = [threading.Thread(target=compile_once, args=("p", first))]
    threads += [threading.Thread(target=compile_once, args=("p", other)) for _ in range(2)]
    threads[0].start()
    begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    time.sleep(3 * program_cache.PAUSE)
    assert order == []
    end.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "other", "other"] and not list(folder.iterdir())


def test_nobody_waits_for_one_that_is_dead_and_not_long_for_one_that_hangs(folder, monkeypatch):
    path = folder / "p.lock"
    held = "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); "
    words = [sys.executable, "-c", held + "print(flush=True); time.sleep(60)", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        monkeypatch.setattr(program_cache, "PATIENCE", 0.2)
        assert compile_once("p", lambda: 1) == 1  # while the other hangs
        monkeypatch.setattr(program_cache, "PATIENCE", 1e9)
        assert compile_once("p", lambda: 1) == 1  # compiled: nothing to wait for
        os.kill(process.pid, signal.SIGKILL)
    monkeypatch.setattr(program_cache, "_compiled", set())
    assert compile_once("p", lambda: 2) == 2 and not path.exists()


def test_what_fails_lets_go_and_without_a_cache_nothing_is_locked(folder, monkeypatch):
    with pytest.raises(ZeroDivisionError):
        compile_once("p", lambda: 1 // 0)
    with (folder / "p.lock").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    monkeypatch.setattr(compilation_cache, "_enabled", [])
    assert compile_once("q", lambda: 3) == 3 and not (folder / "q.lock").exists()
