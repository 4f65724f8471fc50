"""Arrays that a program hands on are those that its caller has, and the others are its own."""

import jax
import jax.numpy as jnp
import numpy as np

from diamond.peers.output_aliasing import rest


def test_what_a_program_only_hands_on_is_not_copied():
    @jax.jit
    def program(given):
        made = {"new": given["a"] + 1, "kept": given["b"], "twice": (given["a"], given["a"])}
        return rest(made, given)

    given = {"a": jnp.arange(3.0), "b": jnp.ones(2)}
    found = program(given)
    assert len(found.made) == 1  # all that it computes
    whole = found.whole(given)
    assert whole["kept"] is given["b"] and whole["twice"] == (given["a"], given["a"])
    np.testing.assert_array_equal(whole["new"], [1, 2, 3])
