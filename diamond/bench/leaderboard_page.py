"""Page of a benchmark: its numbers and charts in one offline file."""

from pathlib import Path

from ..report.report_page import SHARED, STYLE, fill, read, write
from .leaderboard_payload import payload
from .suite_results import Results

HERE = Path(__file__).parent / "page"
OWN = "state standings about costs profile ranks curves constants untuned failures main".split()
SCRIPTS = [*SHARED, *(HERE / f"{name}.js" for name in OWN)]


def build(found: Results, out: Path) -> Path:
    """Write the page of these results as one HTML file without external requests."""
    return write(render(found), Path(out))


def render(found: Results) -> str:
    """Render the page as text, in the style of reports."""
    style = read(STYLE) + read(HERE / "bench.css")
    return fill(HERE / "bench.html", payload(found), SCRIPTS, {"style": style})
