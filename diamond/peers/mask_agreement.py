"""Agreement on the keys of masked sums, once before the first message of a run.

A site requests the signed public key of each neighbour, and then from each neighbour the signed
keys of all neighbours that it has. The answers are on the disk before anything is masked.
"""

from typing import Any

from .client import NeighbourClient, gather_or_cancel
from .mask_keys import ALL_KEYS, OWN_KEY, MaskKeys
from .timeouts import retry_until_answered
from .wire_format import MAX_REQUEST_BYTES, FrameError, pack, unpack


async def agree_on_keys(keys: MaskKeys, client: NeighbourClient) -> None:
    """Fetch the keys of all neighbours of all neighbours."""

    async def fetch_own_key(j: int) -> None:
        header = await _request(client, j, keys, OWN_KEY)
        record = header.get("record")
        if not isinstance(record, bytes):
            raise FrameError("an answer without a key of masked sums")
        keys.add_record(j, record)

    async def fetch_all_keys(j: int) -> None:
        keys.add_group(j, (await _request(client, j, keys, ALL_KEYS)).get("records"))

    await gather_or_cancel(fetch_own_key(j) for j in keys.groups)
    client.service.notify_waiting()
    await gather_or_cancel(fetch_all_keys(j) for j in keys.groups)


async def _request(client: NeighbourClient, j: int, keys: MaskKeys, kind: str) -> dict[str, Any]:
    """Return the answer of neighbour j, once it has one."""
    header = {"kind": kind, "sender": keys.agent, "run": keys.run, "key": keys.public_key}

    async def attempt() -> dict[str, Any] | None:
        answer = await client.transport.send_request(j, pack(header))
        return unpack(answer, MAX_REQUEST_BYTES)[0] if answer else None

    with client.neighbour_status[j].mark_awaited():
        limits = client.timeouts, client.wait_records[j]
        description = f"keys of masked sums of {client.service.site_name(j)}"
        return await retry_until_answered(attempt, description, *limits)
