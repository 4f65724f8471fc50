"""Page of a benchmark: its numbers and charts in one offline file."""

from pathlib import Path

from ..report.report_page import SHARED_SCRIPTS, STYLE, fill_template, read_asset, write_page
from .leaderboard_payload import collect_leaderboard_data
from .suite_results import Results

HERE = Path(__file__).parent / "page"
LEADERBOARD_SCRIPT_NAMES = (
    "state standings about costs profile ranks curves constants untuned failures main".split()
)
SCRIPTS = [*SHARED_SCRIPTS, *(HERE / f"{name}.js" for name in LEADERBOARD_SCRIPT_NAMES)]


def build_leaderboard(results: Results, out: Path) -> Path:
    """Write the page of these results as one HTML file without external requests."""
    return write_page(render_leaderboard(results), Path(out))


def render_leaderboard(results: Results) -> str:
    """Render the page as text, in the style of reports."""
    style = read_asset(STYLE) + read_asset(HERE / "bench.css")
    return fill_template(
        HERE / "bench.html", collect_leaderboard_data(results), SCRIPTS, {"style": style}
    )
