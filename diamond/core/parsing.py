"""Parsing of bytes from outside: it ends in a value, or in one error of this package.

Libraries of formats raise more kinds of errors than a list of them names (cryptography has some
that are no `ValueError`), and deep nesting exhausts the stack. So every parser of bytes that a
neighbour, a stranger or the disk has supplied runs inside `refuse_unreadable`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


@contextmanager
def refuse_unreadable(
    refusal: type[Exception],
    description: str,
    *described: type[Exception],
    passing: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raise `refusal` in place of every other exception.

    Args:
        refusal: error of the parser; raised inside, it passes.
        description: what cannot be read; the kind of the exception is added to it.
        *described: errors whose messages are sentences already: the refusal repeats them.
        passing: errors that the caller handles.
    """
    unchanged: tuple[type[BaseException], ...] = (refusal, *passing, *INTERRUPTIONS)
    try:
        yield
    except unchanged:
        raise
    except described as cause:
        raise refusal(str(cause)) from None
    except BaseException as cause:  # a panic of a compiled parser is no `Exception`
        reason = f": {cause}" if isinstance(cause, OSError) else ""
        raise refusal(f"{description} ({type(cause).__name__}{reason})") from None
