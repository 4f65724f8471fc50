"""Parsers of foreign bytes end in a value or in one error."""

import asyncio

import pytest

from diamond.core.parsing import refuse_unreadable

pytestmark = pytest.mark.quick


class Refusal(Exception):
    pass


class Sentence(Exception):
    pass


class Panic(BaseException):
    """As compiled parsers raise it."""


@refuse_unreadable(Refusal, "no number", Sentence)
def parse(cause):
    if cause is not None:
        raise cause
    return 1


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (ValueError("long foreign text"), r"no number \(ValueError\)"),
        (RecursionError(), r"no number \(RecursionError\)"),
        (Panic("rust"), r"no number \(Panic\)"),
        (OSError("disk full"), r"no number \(OSError: disk full\)"),
        (Sentence("it is late"), "it is late"),
        (Refusal("as it is"), "as it is"),
    ],
)
def test_every_exception_becomes_a_refusal(cause, message):
    assert parse(None) == 1
    with pytest.raises(Refusal, match=f"^{message}$"):
        parse(cause)


@pytest.mark.parametrize("cause", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_interruptions_pass(cause):
    with pytest.raises(cause):
        parse(cause())
