"""A command of python that dies by SIGKILL at its n-th write of some files.

    python write_kill.py ROOT PATTERN N SHARE python -m MODULE ...
    python write_kill.py ROOT PATTERN N SHARE python SCRIPT ...

Operations on files below ROOT whose path matches PATTERN count (`write_watch`); SHARE is how much
of the N-th one happens.
"""

import os
import re
import runpy
import signal
import sys

from write_watch import WriteWatch, watching


def main(root, pattern, at, share, python, script, *words):
    count = 0

    def on_operation(operation):
        nonlocal count
        count += re.search(pattern, str(operation.path)) is not None
        return float(share) if count == int(at) else None

    watch = WriteWatch(root, on_operation, lambda path: os.kill(os.getpid(), signal.SIGKILL))
    with watching(watch):
        if script == "-m":
            sys.argv = [*words]
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [script, *words]
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
