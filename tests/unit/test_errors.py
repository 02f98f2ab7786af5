"""What commands say of errors, and where what they print goes."""

import subprocess
import sys

import pytest
import torch

from agg_fairseq.errors import first_line


def test_the_line_of_an_error_has_the_parameters_that_do_not_fit():
    """torch lists them below its first line."""
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(2, 3).load_state_dict({"weight": torch.zeros(4, 2), "scale": torch.zeros(1)})
    line = first_line(caught.value)
    assert "\n" not in line and line.startswith("RuntimeError: Error(s) in loading state_dict for Linear:")
    assert '"bias"' in line and '"scale"' in line and "torch.Size([4, 2])" in line
    assert (
        first_line(ValueError("one\ntwo")) == "ValueError: one" and first_line(ValueError()) == "ValueError: no message"
    )


def test_whoever_reads_may_go():
    """As in `agg-fairseq … | head -0`: no traceback at the end."""
    program = "import time; time.sleep(1); from agg_fairseq.cli.main import main; raise SystemExit(main(['user-dir']))"
    command = f'"{sys.executable}" -c "{program}" | true; exit ${{PIPESTATUS[0]}}'
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
