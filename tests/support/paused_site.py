"""`diamond net start`, holding its breath at a phase of a round until whoever started it says so.

    python paused_site.py PHASE ROUND OUT IN net start ...

When the agent comes to the phase ("outgoing_arrays", "finish_exchange" or "checkpoint") after
ROUND rounds, for the first time, a byte goes to the descriptor OUT, and one is awaited from IN. The
losses are not checked, which takes a second.
"""

import os
import sys

from diamond import cli
from diamond.problem import loss_validation
from diamond.records import checkpoint_file
from diamond.sites.rounds.site_agent import Agent


def main(phase, round, out, back, *words):
    """The command, with the phase watched."""
    held_phases = []

    def wait_for_parent():
        if not held_phases:
            held_phases.append(phase)
            os.write(int(out), b"!")
            os.read(int(back), 1)

    def hold_before(name):
        original = getattr(Agent, name)

        def wait_then_call(self, progress, *arguments):
            if progress.t >= int(round):
                wait_for_parent()
            return original(self, progress, *arguments)

        setattr(Agent, name, wait_then_call)

    def write_half(path, *parts, durable=True):
        if path.stem.isdigit() and int(path.stem) >= int(round):
            content = b"".join(parts)
            path.with_name(path.name + ".tmp").write_bytes(content[: len(content) // 2])
            wait_for_parent()
        replace(path, *parts, durable=durable)

    if phase == "checkpoint":
        replace, checkpoint_file.replace_file = checkpoint_file.replace_file, write_half
    elif phase:
        hold_before(phase)
    loss_validation.check_losses = lambda problem: 0
    sys.argv = ["diamond", *words]
    cli.app()


if __name__ == "__main__":
    main(*sys.argv[1:])
