"""The report of a run whose messages are lost now and then, in a real browser."""

import pytest
import small_run_folders
from browser_pages import chart_data, needs_browser, table_rows

import diamond
from diamond import report

pytestmark = needs_browser


@pytest.mark.wide
def test_each_link_says_how_many_messages_were_lost(visit, tmp_path):
    lossy = diamond.network.ring(5).through(diamond.network.channels.drops(0.3))
    path = small_run_folders.write_run(tmp_path / "runs" / "lossy", "dsgd", "D-SGD", network=lossy)
    losses = small_run_folders.change_manifest(path)["losses"]
    assert [row[2] for row in losses] == [80] * 5 and sum(row[3] for row in losses) > 0
    page = visit(report.build([tmp_path / "runs"], tmp_path / "report.html").as_uri())
    bytes = {(i, j): sent for i, j, sent in small_run_folders.change_manifest(path)["traffic"]}
    assert table_rows(page, "links") == [
        [
            f"{i} \u2013 {j}",
            str(sent),
            str(lost_count),
            f"{100 * lost_count / sent:.4g}\xa0%",
            f"{bytes[i, j] / 1e3:g} kB",
        ]
        for i, j, sent, lost_count in losses
    ]
    lost_count = sum(row[3] for row in losses)
    note = page.locator("#network-note").inner_text()
    assert f"Of 400 messages {lost_count} were lost ({lost_count / 4:g}\xa0%)." in note
    texts = [
        text for trace in chart_data(page, "network")["data"] for text in trace.get("text", [])
    ]
    assert any(f"{losses[0][3]} of 80 messages lost" in text for text in texts)
    small_run_folders.change_manifest(path, losses=[])  # as of a run without such a channel
    page = visit(report.build([tmp_path / "runs"], tmp_path / "plain.html").as_uri())
    assert page.locator("#links-part").is_hidden()
