"""The page on PyTorch runs from top to bottom and prints what it shows."""

import pytest
from fast_compilation import without_optimizations
from pages import DOCS, play

from diamond.hardware import compilation_cache

for package in ("torch", "torchax", "transformers", "peft"):
    pytest.importorskip(package, reason=f"{package} is not installed: make test-torch")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, which peft calls
def test_the_page_on_pytorch_runs(tmp_path, monkeypatch, float32):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compilation_cache, "enable_compile_cache", lambda: None)
    with without_optimizations():
        names = play(DOCS / "how-to" / "pytorch.md")
    loss = names["run"].history["upper_loss"]
    assert loss[-1] < 0.9 * loss[0]
