"""Errors that travel between sites: which one arrives, whatever the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diamond.sites.transport.errors import (
    ERROR_CODES,
    OutdatedRoster,
    Refused,
    RunFailed,
    RunMismatch,
    Unreachable,
    decode_error,
    encode_error,
)
from diamond.sites.trust.signed_records import RevokedKey

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("sent", "arrived", "cause"),
    [
        (Refused, Refused, None),
        (RevokedKey, Refused, None),  # a kind of refusal without a code of its own
        (RunFailed, RunFailed, None),
        (RunMismatch, RunMismatch, None),
        (OutdatedRoster, Unreachable, OutdatedRoster),  # it may be over soon
        (KeyError, Unreachable, None),
    ],
)
def test_an_error_arrives_as_what_it_means(sent, arrived, cause):
    code, body = encode_error(sent("no"))
    error = decode_error(code, memoryview(body))
    assert type(error) is arrived and "no" in str(error)
    assert error.__cause__ is None if cause is None else type(error.__cause__) is cause


@given(st.integers(0, 255), st.binary(max_size=64))
def test_any_packet_with_an_error_is_one(code, body):
    error = decode_error(code, memoryview(body))
    assert isinstance(error, Refused) == (
        code in {*ERROR_CODES.values()} - {ERROR_CODES[OutdatedRoster]}
    )
    assert isinstance(error, Refused | Unreachable) and str(error).isprintable()
