import io

import pytest

from scripts.progress import follow

SETTINGS = "2026-01-01 | INFO | fairseq_cli.train | {'optimization': {'max_update': 40, 'lr': [0.01]}}"
NUMBERS = '{"epoch": 1, "loss": "9.1", "ppl": "500.5", "num_updates": "%d", "rare_tokens": "7"}'
INNER = f"2026-01-01 10:00:00 | INFO | train_inner | {NUMBERS}"


def shown(*lines, is_terminal=False):
    screen, copy = io.StringIO(), io.BytesIO()
    screen.isatty = lambda: is_terminal
    written = [f"{line}\n".encode() for line in lines]
    follow("agg", written, screen, copy)
    assert copy.getvalue() == b"".join(written)
    return screen.getvalue()


@pytest.mark.parametrize("line", [INNER, f"[2026-01-01 10:00:00,000][train_inner][INFO] - {NUMBERS}"])
def test_both_forms_of_a_line(line):
    text = shown(SETTINGS, "loading", line % 10)
    assert text == f"agg          [{'#' * 7:<30}] 10/40  ppl 500.5  rare tokens 7\n"


def test_a_tenth_of_the_way_each_and_validation_under_the_same_names():
    text = shown(SETTINGS, *[INNER % updates for updates in range(1, 41)])
    assert text.count("\n") == 11 and text.endswith("] 40/40  ppl 500.5  rare tokens 7\n")
    valid = '2026-01-01 | INFO | valid | {"epoch": 1, "valid_ppl": "321.0", "valid_num_updates": "20"}'
    assert shown(SETTINGS, INNER % 10, valid).splitlines()[-1].endswith("20/40  ppl 321.0  rare tokens 7")


def test_a_resumed_run_on_a_terminal_begins_where_it_is():
    text = shown(SETTINGS, INNER % 30, INNER % 40, is_terminal=True)
    assert "30/40" in text.split("\r")[1] and "40/40" in text.split("\r")[2]
    assert "40/40  ppl 500.5  rare tokens 7  0 s left" in text and text.endswith("\n")


def test_what_is_no_line_of_numbers_is_skipped():
    """An error would end the training, whose output nobody read any more."""
    wrong = ["{not JSON}", '{"num_updates": }', "{'num_updates': 3}", "{}"]
    assert shown(*(f"| train_inner | {text}" for text in wrong), INNER % 10) == shown(INNER % 10)
    assert "] 10/10 " in shown(INNER % 10)
