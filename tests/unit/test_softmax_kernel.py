"""The kernels for GPUs, run on a CPU by Triton's interpreter."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytest.importorskip("triton")
# Triton's interpreter cuts bfloat16 off, where a GPU rounds: twice the error.
LARGEST = {"torch.float32": 1e-6, "torch.bfloat16": 8e-3, "torch.float16": 8e-4}


def test_the_kernels_compute_the_losses():
    done = subprocess.run(
        [sys.executable, "-m", "tests.interpreted_kernel"],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    cases = json.loads(done.stdout)
    assert len(cases) == 16 + 18
    for case in cases:
        assert max(case["errors"]) < LARGEST[case["dtype"]], case
