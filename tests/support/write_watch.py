"""Every operation by which a process changes its files, one by one, and death at one of them.

Watched are open, write, fsync, rename, unlink, truncate and mkdir below a folder, wherever the
package calls them. At a write, a part of the bytes may reach the file. What a process holds in
buffers is lost when it dies, as by SIGKILL. Either the process is really killed (`write_kill.py`),
or its site in this process is: then nothing that this life of the site still does changes a file.
"""

import asyncio
import builtins
import io
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class Killed(Exception):
    """Error: the site was killed."""


class Operation(NamedTuple):
    """Change of a file."""

    kind: str
    path: Path


def cancel(task):
    """Cancel the task of a killed site, unless it is about to end by `Killed`."""
    if task is not asyncio.current_task():
        task.cancel()


class WriteWatch:
    """Calls `on_operation(operation)` before each operation below `root`.

    It returns None to let the operation happen, or, to die there, the share of it that happens
    first: 0.0 nothing, 1.0 all. `die(path)` kills; if it returns, what was killed is the site that
    owns the path (`owner_of`), and `revive` starts its next life.
    """

    def __init__(self, root, on_operation, die=lambda path: None, owner_of=lambda path: 0):
        self.root, self.on_operation = os.path.abspath(root), on_operation
        self.die, self.owner_of = die, owner_of
        self.lives, self.dead, self.is_paused = {}, set(), False
        self.paths, self.files = {}, {}  # by descriptor, and by owner

    def revive(self, owner):
        """Begin the next life of a site; the system closes what the last one had open."""
        self.lives[owner] = self.life(owner) + 1
        for file in self.files.pop(owner, ()):
            file.close()
        self.dead.discard(owner)

    def life(self, owner):
        return self.lives.get(owner, 0)

    @contextmanager
    def paused(self):
        """Watch nothing inside the context, where the test itself writes."""
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    def is_watched(self, path):
        return not self.is_paused and os.path.abspath(path).startswith(self.root + os.sep)

    def apply(self, kind, path, action, write_part=lambda share: None):
        """Do the operation unless its site is dead or dies."""
        path = Path(os.path.abspath(path))
        owner = self.owner_of(path)
        if owner in self.dead:
            raise Killed(f"{kind} of {path}")
        share = self.on_operation(Operation(kind, path))
        if share is None:
            return action()
        with suppress(OSError):  # such as of a folder that is there already
            done = action() if share == 1.0 else write_part(share)
            if kind == "open" and done is not None:
                done.close() if isinstance(done, io.IOBase) else os.close(done)
        self.dead.add(owner)
        self.die(path)
        raise Killed(f"{kind} of {path}")


class _File(io.FileIO):
    """Unbuffered file whose writes are watched."""

    def __init__(self, path, mode, watch):
        super().__init__(path, mode)
        self.watch, self.path = watch, Path(os.path.abspath(path))
        self.owner = watch.owner_of(self.path)
        self.life = watch.life(self.owner)
        watch.files.setdefault(self.owner, []).append(self)

    def write(self, content):
        content, parent = bytes(content), super()
        if self.owner in self.watch.dead or self.life != self.watch.life(self.owner):
            return len(content)  # the buffer of a dead process

        def write_part(share):
            parent.write(content[: int(share * len(content))])

        return self.watch.apply("write", self.path, lambda: parent.write(content), write_part)


@contextmanager
def watching(watch):
    """Watch the operations inside the context."""
    real = {name: getattr(os, name) for name in _OS_FUNCTIONS}
    real_open, real_os_open = io.open, os.open

    def open_watched(file, mode="r", buffering=-1, *rest, **options):
        is_path = isinstance(file, str | os.PathLike) and "opener" not in options
        if not is_path or not {*mode} & {*"wax+"} or not watch.is_watched(file):
            opened = real_open(file, mode, buffering, *rest, **options)
            watch.paths.pop(opened.fileno(), None)  # of a file that is closed
            return opened
        raw_mode = mode.replace("b", "").replace("t", "")
        raw = watch.apply("open", file, lambda: _File(file, raw_mode, watch))
        watch.paths[raw.fileno()] = file
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **options)

    def os_open_watched(path, flags, *rest, **options):
        open_file = lambda: real_os_open(path, flags, *rest, **options)
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or not watch.is_watched(path):
            descriptor = open_file()
            watch.paths.pop(descriptor, None)  # of a file that is closed
            return descriptor
        descriptor = watch.apply("open", path, open_file)
        watch.paths[descriptor] = path
        return descriptor

    def by_path(name):
        def function(path, *rest, **options):
            if isinstance(path, int):
                return by_descriptor(name)(path, *rest, **options)
            action = lambda: real[name](path, *rest, **options)
            return watch.apply(name, path, action) if watch.is_watched(path) else action()

        return function

    def by_descriptor(name):
        def function(descriptor, *rest, **options):
            action = lambda: real[name](descriptor, *rest, **options)
            path = watch.paths.get(descriptor)
            if path is None:
                return action()

            def write_part(share):
                if name == "write":  # what is overwritten in place is one sector, written whole
                    part = bytes(rest[0])[: int(share * len(rest[0]))]
                    real[name](descriptor, part)

            return watch.apply(name, path, action, write_part)

        return function

    def close_watched(descriptor):
        watch.paths.pop(descriptor, None)
        return real["close"](descriptor)

    made = {"close": close_watched}
    for name in _OS_FUNCTIONS:
        if name != "close":
            made[name] = (by_descriptor if name in _BY_DESCRIPTOR else by_path)(name)
    try:
        builtins.open = io.open = open_watched
        os.open = os_open_watched
        for name, function in made.items():
            setattr(os, name, function)
        yield watch
    finally:
        builtins.open = io.open = real_open
        os.open = real_os_open
        for name, function in real.items():
            setattr(os, name, function)


_BY_DESCRIPTOR = ("write", "pwrite", "fsync")
_BY_PATH = ("replace", "rename", "unlink", "remove", "truncate", "mkdir", "rmdir")
_OS_FUNCTIONS = (*_BY_DESCRIPTOR, *_BY_PATH, "close")
