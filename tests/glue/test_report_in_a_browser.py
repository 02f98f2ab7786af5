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

NAMES = {
    "wikitext-2-transformer-lm-adaptive-gradient-gating-run-number-1-lr-0.0005": "mle",
    "wikitext_2_transformer_lm_adaptive_gradient_gating_run_number_2_lr_0.0005": "agg",
    "wikitext2transformerlmadaptivegradientgatingrunnumber3lr0.0005": "agg",
    "mle": "mle",
}
"""By the name of a run, the run that it is a copy of."""
PHONE, PAPER, DESK = 390, 718, 1200
"""Widths in CSS pixels; that of paper is of A4 within the margins of a browser."""
PROBE = """<script>
window.addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const {innerWidth, document: page} = frame.contentWindow;
    const width = (element) => element.getBoundingClientRect().width;
    const empty = ({children}) =>
      ![...children].some((part) => part.tagName != "H2" && part.getBoundingClientRect().height > 15);
    return {
      width: innerWidth,
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      images: page.images.length,
      broken: [...page.images].filter((image) => !image.naturalWidth).length,
      empty: [...page.querySelectorAll("section")].filter(empty).map((section) => section.id),
      columns: [...page.querySelectorAll(":is(#runs, #language-model, #embeddings, #texts) thead th")].map(width),
      first: Math.max(...[...page.querySelectorAll("tr > :first-child")].map(width)),
    };
  });
  document.body.textContent = JSON.stringify(found);
});
</script>"""


def test_the_page_fits(lm_runs, lm_data, tmp_path):
    """All pictures drawn, no section empty, nothing wider than the window, for runs of long names.

    They are broken into lines: no column is wider than 12rem, and on a phone half of it is left for the numbers. Each
    width is a frame: the window of a browser without a screen is never narrower than 500 pixels.
    """
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium; install it to see the report in a browser")
    runs = [shutil.copytree(lm_runs / of, tmp_path / name) for name, of in NAMES.items()]
    report, frames = tmp_path / "report.html", tmp_path / "frames.html"
    options = ["--data", lm_data, "--gen-subset", "train", "--max-texts", "1", "--words", "w3", "--output", report]
    assert main(["report", *map(str, [*runs, *options])]) == 0
    page = report.read_text()
    contents = {PHONE: page, PAPER: page.replace("@media print", "@media all"), DESK: page}
    style = '<iframe style="border: 0; width: {}px; height: 800px" srcdoc="{}"></iframe>'
    of_each = "".join(style.format(width, html.escape(content)) for width, content in contents.items())
    frames.write_text(f"<!DOCTYPE html><meta charset=utf-8>{PROBE}<body>{of_each}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr", "--dump-dom"]
    command = [program, *options, f"--user-data-dir={tmp_path}/profile", f"file://{urllib.parse.quote(str(frames))}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0 and "CONSOLE" not in result.stderr, result.stderr[-2000:]
    found = json.loads(html.unescape(re.search("<body>(.*)</body>", result.stdout, re.DOTALL)[1]))
    for width, seen in zip(contents, found, strict=True):
        assert (seen["width"], seen["overflow"], seen["broken"], seen["empty"]) == (width, 0, 0, [])
        assert seen["images"] == page.count("<img ") >= 9
        assert len(seen["columns"]) > 4 * 4 and max(seen["columns"]) <= 12 * 16 + 1 and seen["first"] <= width / 2
