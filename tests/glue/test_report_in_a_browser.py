"""The page of `agg-fairseq report` in a real browser: on a phone, on a desk and in print, with runs of long names."""

import html
import json
import re
import shutil
import subprocess
import urllib.parse

import pytest

from agg_fairseq.cli.main import main

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def page(lm_runs, lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    runs = [folder / name for name in NAMES]
    for run, of in zip(runs, ("mle", "agg", "agg", "mle"), strict=True):
        shutil.copytree(lm_runs / of, run)
    path = folder / "report.html"
    options = ["--data", lm_data, "--split", "train", "--max-texts", "1", "--output", path]
    assert main(["report", *map(str, [*runs, *options])]) == 0
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Calls chromium without a screen: a page and arguments to its output and errors."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium; install it to see the report in a browser")
    profile = tmp_path_factory.mktemp("chromium")

    def call(path, *arguments):
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={profile}",
            *arguments, f"file://{urllib.parse.quote(str(path))}",
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        assert result.returncode == 0, result.stderr[-2000:]
        return result.stdout, result.stderr

    return call


@pytest.fixture(scope="module")
def looked_at(page, browser, tmp_path_factory):
    """What is seen of the page at each width, that of paper in the layout of print; and the browser's log.

    Each is a frame: the window of a browser without a screen is never narrower than 500 pixels.
    """
    content = page.read_text()
    contents = {PHONE: content, PAPER: content.replace("@media print", "@media all"), DESK: content}
    frames = [
        f'<iframe style="border: 0; width: {width}px; height: 800px" srcdoc="{html.escape(of_width)}"></iframe>'
        for width, of_width in contents.items()
    ]
    path = tmp_path_factory.mktemp("frames") / "frames.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{PROBE}<body>{''.join(frames)}")
    dom, log = browser(path, "--dump-dom")
    found = json.loads(html.unescape(re.search("<body>(.*)</body>", dom, re.DOTALL)[1]))
    return {width: seen for width, seen in zip(contents, found, strict=True)}, log


@pytest.mark.parametrize("width", [PHONE, PAPER, DESK])
def test_the_page_fits(page, looked_at, width):
    """All pictures drawn, nothing wider than the window, long names broken into lines."""
    seen, log = looked_at[0][width], looked_at[1]
    assert seen["width"] == width and seen["overflow"] == 0 and "CONSOLE" not in log, log
    assert seen["images"] == page.read_text().count("<img ") >= 7 and seen["broken"] == 0
    assert len(seen["columns"]) > 3 * 4 and max(seen["columns"]) <= 12 * 16 + 1  # 12rem
