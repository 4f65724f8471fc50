"""Pages as a reader meets them, in a real browser."""

import json
import shutil
from contextlib import contextmanager

import pytest

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in BROWSER_NAMES if (path := shutil.which(name))), None)
BROWSER_FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_FLAGS)
        yield running
        running.close()


@pytest.fixture
def visit(browser):
    with open_pages(browser) as open_page:
        yield open_page


@contextmanager
def open_pages(browser):
    """Open pages; at the end, none has complained or asked for anything but itself."""
    contexts, complaints, requests = [], [], []

    def open_page(address, ready="#curves-chart .main-svg", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.locator(ready).first.wait_for()
        page.address, page.complaints = address, complaints
        return page

    yield open_page
    homes = {page.address.split("#")[0] for context in contexts for page in context.pages}
    for context in contexts:
        context.close()
    assert complaints == []
    foreign = [url for url in requests if not url.startswith(("data:", "blob:", *homes))]
    assert foreign == []


def chart_data(page, chart="curves"):
    """What a chart is made of, as Plotly has it."""
    code = "id => (({data, layout}) => JSON.stringify({data, layout}))(document.getElementById(id))"
    return json.loads(page.evaluate(code, f"{chart}-chart"))


def table_rows(page, name):
    rows = page.locator(f"#{name} tbody tr").all()
    return [[cell.inner_text() for cell in row.locator("th, td").all()] for row in rows]
