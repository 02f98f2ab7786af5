"""The page of `agg-fairseq report` in a real browser: on a phone, on a desk and in print, with runs of long names."""

import html
import json
import re
import shutil
import subprocess

import pytest

from agg_fairseq.cli.main import main

LONG = "wikitext-2-transformer-lm-adaptive-gradient-gating-run-number-1-lr-0.0005"
NAMES = [LONG, LONG.replace("-", "_"), LONG.replace("-", ""), "mle"]
PHONE, PAPER, DESK = 390, 718, 1200
"""Widths in CSS pixels; that of paper is of A4 within the margins of a browser."""
PROBE = """<script>
window.addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const {innerWidth, document: page} = frame.contentWindow;
    return {
      width: innerWidth,
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      images: page.images.length,
      broken: [...page.images].filter((image) => !image.naturalWidth).length,
      columns: [...page.querySelectorAll(":is(#runs-and-settings, #perplexity-and-predictions, #embeddings) thead th")]
        .map((title) => title.getBoundingClientRect().width),
    };
  });
  document.body.textContent = JSON.stringify(found);
});
</script>"""


@pytest.mark.slow
def test_the_page_fits(lm_runs, lm_data, tmp_path):
    """At each width, that of paper in the layout of print: all pictures drawn, nothing wider than the window.

    Each is a frame: the window of a browser without a screen is never narrower than 500 pixels.
    """
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium; install it to see the report in a browser")
    runs, path = [tmp_path / name for name in NAMES], tmp_path / "report.html"
    for run, of in zip(runs, ("mle", "agg", "agg", "mle"), strict=True):
        shutil.copytree(lm_runs / of, run)
    options = ["--data", lm_data, "--split", "train", "--max-texts", "1", "--output", path]
    assert main(["report", *map(str, [*runs, *options])]) == 0
    content = path.read_text()
    contents = {PHONE: content, PAPER: content.replace("@media print", "@media all"), DESK: content}
    frames = "".join(
        f'<iframe style="border: 0; width: {width}px; height: 800px" srcdoc="{html.escape(of_width)}"></iframe>'
        for width, of_width in contents.items()
    )
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><meta charset=utf-8>{PROBE}<body>{frames}")
    command = [
        program, *"--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking".split(),
        *"--disable-dev-shm-usage --hide-scrollbars --enable-logging=stderr --dump-dom".split(),
        f"--user-data-dir={tmp_path / 'chromium'}", (tmp_path / "frames.html").as_uri(),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0 and "CONSOLE" not in result.stderr, result.stderr[-2000:]
    found = json.loads(html.unescape(re.search("<body>(.*)</body>", result.stdout, re.DOTALL)[1]))
    assert [seen["width"] for seen in found] == [*contents]
    for seen in found:
        assert seen["overflow"] == 0 and seen["broken"] == 0 and seen["images"] == content.count("<img ") == 4, seen
        assert len(seen["columns"]) > 3 * 4 and max(seen["columns"]) <= 12 * 16 + 1, seen  # 12rem
