"""Agreement on the keys of masked sums, once before the first message of a run.

A site requests the signed public key of each neighbour, and then from each neighbour the signed
keys of all neighbours that it has. The answers are on the disk before anything is masked.
"""

from collections.abc import Callable
from typing import Any

from ..core.parsing import refuse_unreadable
from .call_errors import Refused
from .client import NeighbourClient, gather_or_cancel
from .mask_keys import ALL_KEYS, OWN_KEY, MaskKeys
from .timeouts import retry_until_answered
from .wire_format import MAX_REQUEST_BYTES, FrameError, pack, unpack


async def agree_on_keys(keys: MaskKeys, client: NeighbourClient) -> None:
    """Fetch the keys of all neighbours of all neighbours."""

    async def fetch_own_key(j: int) -> None:
        await _request(
            client, j, keys, OWN_KEY, lambda fields: keys.add_record(j, fields["record"])
        )

    async def fetch_all_keys(j: int) -> None:
        await _request(
            client, j, keys, ALL_KEYS, lambda fields: keys.add_group(j, fields["records"])
        )

    await gather_or_cancel(fetch_own_key(j) for j in keys.groups)
    client.service.notify_waiting()
    await gather_or_cancel(fetch_all_keys(j) for j in keys.groups)


async def _request(
    client: NeighbourClient,
    j: int,
    keys: MaskKeys,
    kind: str,
    read: Callable[[dict[str, Any]], None],
) -> None:
    """Read the answer of neighbour j, once it has one that can be read."""
    header = {"kind": kind, "sender": keys.agent, "run": keys.run, "key": keys.public_key}

    async def attempt() -> bool | None:
        answer = await client.transport.send_request(j, pack(header))
        if not answer:
            return None
        with refuse_unreadable(FrameError, "an answer without keys of masked sums", Refused):
            read(unpack(answer, MAX_REQUEST_BYTES)[0])
        return True

    with client.neighbour_status[j].mark_awaited():
        limits = client.timeouts, client.wait_records[j]
        description = f"keys of masked sums of {client.service.site_name(j)}"
        await retry_until_answered(attempt, description, *limits)
