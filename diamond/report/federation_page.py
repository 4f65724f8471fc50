"""Live page of all sites of a federation: their graph, rounds, states and waiting times."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from importlib.resources import files
from typing import NamedTuple

from ..metrics.display import format_duration
from ..metrics.site_status import NoStatus, SiteStatus, SiteStatuses, SiteWait
from .graph_layout import layout_agents
from .loopback_server import HOST, LoopbackHandler

REFRESH = 2.0  # seconds between two questions to the sites
RADIUS = 150.0  # of the picture, in its own units
PAGE = files(__package__) / "page" / "federation.html"


class SiteGraph(NamedTuple):
    """The members of a federation, by number, and the pairs that exchange messages."""

    name: str
    sites: Sequence[str]
    edges: Sequence[tuple[int, int]]


MIN_WAIT, WAIT_SHARE = 0.1, 0.2  # of shown waits: in seconds, and of the time of a round


def render_page(federation: SiteGraph) -> str:
    """Return the page, which asks for `/view` every two seconds."""
    text = PAGE.read_text(encoding="utf-8").replace("{{title}}", escape(federation.name))
    return text.replace("{{milliseconds}}", str(int(1000 * REFRESH)))


def render_view(federation: SiteGraph, statuses: SiteStatuses) -> str:
    """Return the picture and the table of the sites as HTML."""
    return _draw_graph(federation, statuses) + _render_table(federation, statuses)


def make_federation_server(
    federation: SiteGraph, query: Callable[[], SiteStatuses], port: int = 0
) -> ThreadingHTTPServer:
    """Create a server of the page on loopback; `query` asks the sites."""
    view = _View(federation, query)
    return ThreadingHTTPServer((HOST, port), partial(_Handler, federation, view))


class _View:
    """The newest view, shared by all requests: the sites are asked once in `REFRESH` seconds."""

    def __init__(self, federation: SiteGraph, query: Callable[[], SiteStatuses]):
        self.federation, self.query = federation, query
        self.lock, self.text, self.time = threading.Lock(), "", -math.inf

    def __call__(self) -> str:
        with self.lock:
            if time.monotonic() - self.time > 0.9 * REFRESH:
                self.text = render_view(self.federation, self.query())
                self.time = time.monotonic()
            return self.text


class _Handler(LoopbackHandler):
    """Request handler: `/` is the page, `/view` the picture and the table."""

    def __init__(self, federation: SiteGraph, view: _View, *args: object):
        self.federation, self.view = federation, view
        super().__init__(*args)  # type: ignore[arg-type]

    def answer(self) -> None:
        """Answer the request for the page or for the newest view."""
        if self.path == "/":
            self.send_text(render_page(self.federation), "text/html; charset=utf-8")
        elif self.path == "/view":
            self.send_text(self.view(), "text/html; charset=utf-8")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)


def _draw_graph(federation: SiteGraph, statuses: SiteStatuses) -> str:
    """Draw the sites as circles that fill with their rounds; long waits are dashed edges."""
    points = [
        (RADIUS * (1 + a), RADIUS * (1 + b))
        for a, b in layout_agents(len(federation.sites), [list(e) for e in federation.edges])
    ]
    waits = {
        frozenset((number, wait["agent"]))
        for number, site in enumerate(federation.sites)
        for wait in _long_waits(statuses[site])
    }
    lines = [
        f'<line x1="{points[i][0]:.1f}" y1="{points[i][1]:.1f}" x2="{points[j][0]:.1f}" '
        f'y2="{points[j][1]:.1f}" class="{"waits" if frozenset((i, j)) in waits else "edge"}"/>'
        for i, j in federation.edges
    ]
    circles = []
    for site, (a, b) in zip(federation.sites, points):
        status = statuses[site]
        has_all = "error" not in status and status["state"] == "finished"
        share = status["round"] / max(1, status["rounds"]) if "error" not in status else 0.0
        share = 1.0 if has_all else share
        kind = "bad" if "error" in status else "site"
        circles.append(
            f'<g transform="translate({a:.1f} {b:.1f})" class="{kind}">'
            f'<circle r="16"/><path d="{_pie_path(share, 16)}"/>'
            f'<text y="32">{escape(site)}</text></g>'
        )
    size = 2 * RADIUS
    return (
        f'<svg viewBox="-60 -30 {size + 120:.0f} {size + 80:.0f}" role="img" '
        f'aria-label="The sites and who talks to whom">{"".join(lines + circles)}</svg>'
    )


def _long_waits(status: SiteStatus | NoStatus) -> list[SiteWait]:
    if "error" in status:
        return []
    shortest = max(MIN_WAIT, WAIT_SHARE * status.get("pace", 0.0))
    return [wait for wait in status["waiting"] if wait["seconds"] > shortest]


def _pie_path(share: float, radius: float) -> str:
    """Return the path of the part of a circle from the top, clockwise."""
    if share >= 1:
        return f"M0 {-radius}A{radius} {radius} 0 1 1 -0.01 {-radius}Z"
    angle = 2 * math.pi * share
    end = f"{radius * math.sin(angle):.2f} {-radius * math.cos(angle):.2f}"
    return f"M0 0L0 {-radius}A{radius} {radius} 0 {int(share > 0.5)} 1 {end}Z"


def _render_table(federation: SiteGraph, statuses: SiteStatuses) -> str:
    has_losses = any("loss" in status for status in statuses.values())
    headings = ["Site", "State", "Round", "Waits for", *(["Loss"] if has_losses else [])]
    rows = "".join(
        _render_row(federation, site, statuses[site], has_losses) for site in federation.sites
    )
    heads = "".join(f"<th>{heading}</th>" for heading in headings)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _render_row(
    federation: SiteGraph, site: str, status: SiteStatus | NoStatus, has_losses: bool
) -> str:
    if "error" in status:
        columns = 4 if has_losses else 3
        return (
            f'<tr class="bad"><td>{escape(site)}</td>'
            f'<td colspan="{columns}">{escape(status["error"])}</td></tr>'
        )
    cells = [site, status["state"], f"{status['round']} of {status['rounds']}"]
    cells.append(", ".join(describe_waits(federation.sites, status)))
    if has_losses:
        cells.append(f"{status['loss']:.4g}" if "loss" in status else "")
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def describe_waits(sites: Sequence[str], status: SiteStatus) -> list[str]:
    """Return for whom a site waits and how long, and without whom it continues."""
    waits = [f"{sites[w['agent']]} ({format_duration(w['seconds'])})" for w in status["waiting"]]
    return waits + [f"{sites[number]} (away)" for number in status["away"]]
