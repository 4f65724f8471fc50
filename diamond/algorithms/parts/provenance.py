"""Where the update rule of a method comes from, and how it was checked."""

from typing import NamedTuple

READ = "read in the paper or its code"
CERTAIN = "written from memory of the paper, certain"
FAIRLY_CERTAIN = "written from memory of the paper, fairly certain"
EXACT = "exact on quadratics"  # converges to the closed form


class Provenance(NamedTuple):
    """Reference of a method, the source of its rule, and what a test compares it with."""

    reference: str = ""
    source: str = ""
    check: str = ""

    @property
    def rule(self) -> str:
        """Source and check in a sentence."""
        return "; ".join(filter(None, [self.source, self.check]))
