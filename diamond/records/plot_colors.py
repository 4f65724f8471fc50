"""One colour per algorithm, the same in every figure and report."""

import re
from collections.abc import Iterable

# Palette of Okabe and Ito, distinguishable with all kinds of colour vision. Grey replaces black,
# and yellow is left out, since they are invisible on dark or light backgrounds.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
RESERVED = ("diamond", "gtsgd", "msgd", "dsgd", "interact", "svrinteract", "kfree")


def assign_colours(labels: Iterable[str]) -> dict[str, str]:
    """Assign a colour to every label.

    The library's own algorithms have reserved colours under any spelling ("GT-SGD", "gt_sgd").
    Other labels take the colours that no present label has, in alphabetical order, and reuse
    colours from the first when all are taken.
    """
    names = sorted(set(labels))
    spellings = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in names}
    assigned = {n: OKABE_ITO[RESERVED.index(p)] for n, p in spellings.items() if p in RESERVED}
    free = [colour for colour in OKABE_ITO if colour not in assigned.values()] or list(OKABE_ITO)
    remaining = [name for name in names if name not in assigned]
    return assigned | {name: free[i % len(free)] for i, name in enumerate(remaining)}
