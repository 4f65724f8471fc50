"""Programs return only the arrays that they compute; the caller restores the others."""

import jax
import jax.numpy as jnp
import numpy as np

from diamond.sites.rounds.agent_programs import prune_leaves


def test_aliased_outputs_are_not_copied():
    @jax.jit
    def program(inputs):
        outputs = {
            "new": inputs["a"] + 1,
            "kept": inputs["b"],
            "twice": (inputs["a"], inputs["a"]),
        }
        return prune_leaves(outputs, inputs)

    inputs = {"a": jnp.arange(3.0), "b": jnp.ones(2)}
    pruned = program(inputs)
    assert len(pruned.new_leaves) == 1  # all that it computes
    restored = pruned.restore(inputs)
    assert restored["kept"] is inputs["b"] and restored["twice"] == (inputs["a"], inputs["a"])
    np.testing.assert_array_equal(restored["new"], [1, 2, 3])
