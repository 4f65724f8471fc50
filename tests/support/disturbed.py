"""`diamond net start`, holding its breath at a phase of a round until whoever started it says so.

    python disturbed.py PHASE ROUND OUT IN net start ...

When the agent comes to the phase ("tell", "step" or "checkpoint") after ROUND rounds, for the
first time, a byte goes to the descriptor OUT, and one is awaited from IN. The losses are not looked
over, which takes a second.
"""

import os
import sys

from diamond import cli
from diamond.peers.site_agent import Agent
from diamond.problem import loss_validation
from diamond.records import checkpoint


def main(phase, round, out, back, *words):
    """The command, with the phase watched."""
    seen = []

    def hold():
        if not seen:
            seen.append(phase)
            os.write(int(out), b"!")
            os.read(int(back), 1)

    def before(name):
        original = getattr(Agent, name)

        def held(self, progress, *given):
            if progress.t >= int(round):
                hold()
            return original(self, progress, *given)

        setattr(Agent, name, held)

    def torn(path, *parts, settle=True):
        if path.stem.isdigit() and int(path.stem) >= int(round):
            content = b"".join(parts)
            path.with_name(path.name + ".tmp").write_bytes(content[: len(content) // 2])
            hold()
        replace(path, *parts, settle=settle)

    if phase == "checkpoint":
        replace, checkpoint.replace = checkpoint.replace, torn
    elif phase:
        before(phase)
    loss_validation.check_losses = lambda problem: None
    sys.argv = ["diamond", *words]
    cli.app()


if __name__ == "__main__":
    main(*sys.argv[1:])
