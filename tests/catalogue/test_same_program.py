"""Methods made twice are one to the compiler: nothing is compiled again for the second."""

import jax
import pytest

from diamond.catalogue import maker, names


@pytest.mark.quick
def test_a_method_made_twice_has_one_structure():
    for name in names():
        first, second = (jax.tree.structure(maker(name)()) for _ in range(2))
        assert first == second and hash(first) == hash(second), name
