"""The live page of all sites: what it shows, whom it answers, how often it asks."""

import http.client
import threading
from contextlib import contextmanager
from xml.etree import ElementTree

import pytest

from diamond.report.federation_page import SiteGraph, make_federation_server, render_view

FEDERATION = SiteGraph("trial", ["north", "south <b>", "west"], [(0, 1), (1, 2)])
STATUSES = {
    "north": {"round": 5, "rounds": 20, "state": "running", "waiting": [], "away": [2]},
    "south <b>": {
        "round": 20,
        "rounds": 20,
        "state": "finished",
        "waiting": [{"agent": 0, "seconds": 75.0, "why": ""}],
        "away": [],
        "loss": 0.125,
    },
    "west": {"error": "no answer from this site"},
}


@contextmanager
def serving(query):
    with make_federation_server(FEDERATION, query) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def get(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_a_view_has_every_site_its_round_and_whom_it_waits_for():
    page = ElementTree.fromstring(f"<main>{render_view(FEDERATION, STATUSES)}</main>")
    rows = [[cell.text or "" for cell in row] for row in page.find("table/tbody")]
    assert rows == [
        ["north", "running", "5 of 20", "west (away)", ""],
        ["south <b>", "finished", "20 of 20", "north (75 s)", "0.125"],
        ["west", "no answer from this site"],
    ]
    assert [line.get("class") for line in page.findall("svg/line")] == ["waits", "edge"]
    assert [group.get("class") for group in page.findall("svg/g")] == ["site", "site", "bad"]
    assert page.findall("svg/g/path")[0].get("d").endswith("16.00 -0.00Z")  # a quarter of the disc


def test_only_long_waits_are_drawn():
    def waiting_edge(seconds, pace):
        wait = {"waiting": [{"agent": 0, "seconds": seconds, "why": ""}], "pace": pace}
        statuses = STATUSES | {"south <b>": STATUSES["south <b>"] | wait}
        page = ElementTree.fromstring(f"<main>{render_view(FEDERATION, statuses)}</main>")
        return page.findall("svg/line")[0].get("class") == "waits"

    assert waiting_edge(0.3, pace=0.4) and not waiting_edge(0.0003, pace=0.0004)
    assert not waiting_edge(0.3, pace=10.0)


def test_the_page_asks_the_sites_once_for_several_readers():
    questions = []
    with serving(lambda: questions.append(1) or STATUSES) as port:
        status, page = get(port, "/")
        views = [get(port, "/view") for _ in range(3)]
        assert get(port, "/other")[0] == 404
    assert status == 200 and "<h1>trial</h1>" in page and 'fetch("/view")' in page
    assert {code for code, _ in views} == {200} and len({text for _, text in views}) == 1
    assert len(questions) == 1


@pytest.mark.wide
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80"])
def test_other_hosts_are_refused(host):
    with serving(lambda: STATUSES) as port:
        assert get(port, "/view", host)[0] == 403
