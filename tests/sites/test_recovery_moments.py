"""Ten faults at a hundred random moments each: a site continues as promised, or stops and says how.

`recovery_cases` and `tls_recovery` say what each case does, and what it checks.
"""

import random

import pytest
from recovery_cases import CASES
from tls_recovery import LineProcess, run_twice

MOMENTS = 100
ALL = CASES | {"runs twice": run_twice, "continued on another CPU": None}
QUICK = {"restored from a stopped copy": 2, "killed at the journal": 0}
NEEDS_PRIVACY = {"killed at the ledger"}
OUTCOMES = {
    "continued",
    "stopped",
    "never lost",
    "the second was refused",
    "the first stopped",
    "ended before",
}


@pytest.fixture(scope="module")
def other_cpu():
    """Sites whose programs are compiled in full, of which one may continue without AVX."""
    process = LineProcess("", "cpu")
    yield process.ask
    process.close()


@pytest.mark.parametrize(
    ("case", "moment"),
    [
        pytest.param(case, k, marks=() if QUICK.get(case) == k else pytest.mark.slow)
        for case in ALL
        for k in range(MOMENTS)
    ],
)
def test_a_site_continues_as_promised_or_names_the_command(case, moment, tmp_path, request):
    if case not in QUICK:
        pytest.importorskip("dp_accounting")
    if case == "continued on another CPU":
        outcome = request.getfixturevalue("other_cpu")(moment)
    else:
        outcome = ALL[case](tmp_path, random.Random(moment))
    print(f"{case}: {outcome}")
    assert outcome in OUTCOMES
