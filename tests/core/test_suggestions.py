"""Names that were meant."""

import pytest

from diamond.core.suggestions import did_you_mean

pytestmark = pytest.mark.quick


def test_the_nearest_name_is_suggested_and_else_all_are_listed():
    names = [f"column {i:02d}" for i in range(30)]
    assert did_you_mean("diamnd", ["dsgd", "diamond"]) == "did you mean diamond?"
    assert did_you_mean("AGE", ["Age", "dose"]) == "did you mean Age?"
    assert did_you_mean("zzz", names) == f"there are {', '.join(names)}"
    assert did_you_mean("zzz", {"b", "a"}) == "there are a, b"
    assert did_you_mean("zzz", []) == "there are none"
    assert did_you_mean(3, ["a"]) == "there are a"
