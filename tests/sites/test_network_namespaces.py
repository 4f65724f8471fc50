"""Two sites on two machines, as far as the kernel can tell: a slow link, and one that is cut.

Needs root and `ip netns`, `tc`: elsewhere it is skipped, and says so.
"""

import asyncio
import os
import shutil
import subprocess
import types

import pytest
from site_faults import ROUNDS, Site, found_site_federation, ports

pytestmark = pytest.mark.slow

SPACES = {"north": ("dmnd-a", "10.77.31.1"), "south": ("dmnd-b", "10.77.31.2")}


def sh(command, check=True):
    return subprocess.run(command.split(), check=check, capture_output=True, text=True)


@pytest.fixture
def link():
    """Two network namespaces with a link of 20 Mbit/s between them."""
    if os.name != "posix" or os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("needs root, ip and tc")
    if sh("ip netns add dmnd-a", check=False).returncode:
        pytest.skip("network namespaces cannot be made here")
    try:
        sh("ip netns add dmnd-b")
        sh("ip link add dmnd-va netns dmnd-a type veth peer name dmnd-vb netns dmnd-b")
        for (space, address), end in zip(SPACES.values(), ("dmnd-va", "dmnd-vb")):
            sh(f"ip -n {space} addr add {address}/24 dev {end}")
            sh(f"ip -n {space} link set {end} up")
            sh(f"ip -n {space} link set lo up")
            sh(f"tc -n {space} qdisc add dev {end} root tbf rate 20mbit burst 32kb latency 50ms")
        yield lambda state: sh(f"ip -n dmnd-a link set dmnd-va {state}")
    finally:
        for space, _ in SPACES.values():
            sh(f"ip netns del {space}", check=False)


async def ends(folder, cache, on_phase=None, spaces=SPACES):
    """The digests of x of both sites; `on_phase` is awaited in the fifth round of the second."""
    places = dict(zip(spaces, zip(spaces.values(), ports(len(spaces)))))
    where = {name: f"{address}:{port}" for name, ((_, address), port) in places.items()}
    found_site_federation(folder, where)
    trial = types.SimpleNamespace(folder=folder, cache=cache, patience=1)
    sites = []
    for name, ((space, _), _) in places.items():
        wrapper = ["ip", "netns", "exec", space] if space else []
        sites.append(Site(trial, name, where[name], wrapper))
    try:
        for site in sites:
            await site.start(
                *("finish_exchange", on_phase) if on_phase and site is sites[1] else ()
            )
        ends = [await site.wait_for_end() for site in sites]
    finally:
        for site in sites:
            await site.kill()
    assert [one["round"] for one in ends] == [ROUNDS] * 2
    return [one["x"] for one in ends]


def test_a_slow_link_that_is_cut_for_a_while_changes_nothing(tmp_path, link):
    async def cut():
        link("down")
        asyncio.get_running_loop().call_later(3.0, link, "up")

    loopback = {name: ("", "127.0.0.1") for name in SPACES}
    for name in ("calm", "cut"):
        (tmp_path / name).mkdir()
    calm = asyncio.run(ends(tmp_path / "calm", tmp_path / "cache", spaces=loopback))
    assert asyncio.run(ends(tmp_path / "cut", tmp_path / "cache", cut)) == calm
