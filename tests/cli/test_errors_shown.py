"""Standard errors stand beside what they are of."""

import pytest

from diamond.cli.terminal_tables import format_cell, select_columns

ROW = {"run": "a", "metric": 0.5, "metric_se": 0.012, "error": 2.0, "error_se": 0.1, "samples": 9.0}


@pytest.mark.quick
def test_they_are_no_columns_of_their_own():
    assert select_columns([ROW]) == ["run", "metric", "error", "samples"]
    assert [format_cell(ROW, name) for name in ("metric", "error")] == ["0.5 ± 0.012", "2 ± 0.1"]
    over = ROW | {"metric_sd": 0.3}
    assert format_cell(over, "metric") == "0.5 ± 0.3"
