"""Where the update rule of a method comes from, and how it was checked."""

from typing import NamedTuple

READ = "read in the paper or its code"
READ_CODE = "read in the code"
CERTAIN = "written from memory of the paper, certain"
FAIRLY_CERTAIN = "written from memory of the paper, fairly certain"
ABSTRACT_CERTAIN = f"abstract read; the rule {CERTAIN}"
ABSTRACT_FAIRLY = f"abstract read; the rule {FAIRLY_CERTAIN}"
EXACT = "exact on quadratics"  # converges to the closed form
ALIKE = "exact on quadratics for equal agents, else biased by the steps"
PENALIZED = "on quadratics, its bias halves as the weight of the penalty doubles"


class Provenance(NamedTuple):
    """Reference of a method, the source of its rule, and what a test compares it with."""

    reference: str = ""
    source: str = ""
    check: str = ""
