import io
import re

import pytest

from scripts.progress import follow

SETTINGS = "2026-01-01 | INFO | fairseq_cli.train | {'optimization': {'max_update': 40, 'lr': [0.01]}}"
NUMBERS = '{"epoch": 1, "loss": "9.1", "ppl": "500.5", "num_updates": "%d", "rare_tokens": "7"}'
INNER = f"2026-01-01 10:00:00 | INFO | train_inner | {NUMBERS}"
WRONG = ["{not JSON}", '{"num_updates": }', "{'num_updates': 3}", "{}"]


def shown(*lines, is_terminal=True):
    """The last state of the bar."""
    screen, copy = io.StringIO(), io.BytesIO()
    screen.isatty = lambda: is_terminal
    written = [f"{line}\n".encode() for line in lines]
    follow("agg", written, screen, copy)
    assert copy.getvalue() == b"".join(written)
    return re.sub(r"\[[^]]*, ppl", "[ppl", screen.getvalue().split("\r")[-1])


@pytest.mark.parametrize("line", [INNER, f"[2026-01-01 10:00:00,000][train_inner][INFO] - {NUMBERS}"])
def test_both_forms_of_a_line(line):
    """What is no line of numbers is skipped: an error would end the training, whose output nobody read any more."""
    text = shown(SETTINGS, "loading", *(f"| train_inner | {text}" for text in WRONG), line % 10)
    assert text.startswith("agg:  25%|") and "10/40" in text and "[ppl=500.5, rare tokens=7]" in text
    assert shown(SETTINGS, line % 10, is_terminal=False) == ""


def test_numbers_of_validation_stand_under_the_same_names():
    valid = '2026-01-01 | INFO | valid | {"epoch": 1, "valid_ppl": "321.0", "valid_num_updates": "20"}'
    text = shown(SETTINGS, INNER % 10, valid)
    assert "20/40" in text and "[ppl=321.0, rare tokens=7]" in text
