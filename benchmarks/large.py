"""Networks as lower levels: time and memory beside plain training, domain weights, cleaning.

    python benchmarks/large.py speed [--sizes 0.4 25 150 1000] [--methods ...] [--out FILE]
    python benchmarks/large.py domains [--parameters 0.4] [--seeds 3] [--out FILE]
    python benchmarks/large.py memory [--sizes 0.4 25] [--methods ...] [--out FILE]
    python benchmarks/large.py cleaning [--data cifar10] [--rows 4000] [--rounds 300] [--out FILE]
    python benchmarks/large.py texts [--parameters 25] [--seeds 3] [--out FILE]
    python benchmarks/large.py pictures

`speed`: for every size (in millions of numbers in y) and method, seconds to the end of the first
round, milliseconds a round and peak memory, each beside plain training of the same networks on the
same rows with the same optimizer, in the same process. Every row of the table has a process of its
own, because a device does not forget its peak; plain training comes first, so a peak of the method
is at least that of plain training. `memory`: XLA's own account of compiled rounds, without a run
and the same on every processor. `domains`: `diamond.solve` without step sizes on
`gallery.domain_weights` with 8 sites and 6 sources of which 3 are noise, beside Adam on the clean
rows alone. `texts`: the same for six sources of text that every Python has, for docstrings of
NumPy: learned weights, equal ones, each source alone, and a grid. `cleaning`: `diamond.solve` on
`gallery.network_cleaning`. `--small` makes everything
tiny. FILE gets one JSON line for every finished row. `pictures`: those of the three problems in
docs/reference/gallery.md, at the sizes that `diamond new` writes (--rounds for shorter runs).
"""

import argparse
import os

from large_common import METHODS, SIZES
from large_pictures import pictures
from large_results import cleaning, domains
from large_speed import memory, speed, speed_row
from large_texts import texts

COMMANDS = {"speed": speed, "speed-row": speed_row, "memory": memory, "domains": domains}
COMMANDS |= {"cleaning": cleaning, "pictures": pictures, "texts": texts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--sizes", type=float, nargs="+", choices=SIZES, help="millions")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--parameters", type=float, default=0.4, choices=SIZES, help="millions")
    parser.add_argument("--agents", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of CIFAR-10 used")
    parser.add_argument("--precision", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--data", default="digits", help="digits, cifar10, or its folder")
    parser.add_argument("--channels", type=int, nargs="+", help="of the network to be cleaned")
    parser.add_argument("--problems", nargs="+", help="of pictures")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    if options.command != "speed":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
