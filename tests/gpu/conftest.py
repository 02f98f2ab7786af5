"""Tests that need a GPU. Without one, nothing here is collected; AGG_TEST_DEVICE=cpu runs on a CPU
what can run there."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products of deterministic mode

import pytest
import torch

DEVICE = os.environ.get("AGG_TEST_DEVICE", "cuda")
collect_ignore_glob = [] if DEVICE == "cpu" or torch.cuda.is_available() else ["test_*.py"]


@pytest.fixture
def device():
    return DEVICE


@pytest.fixture
def deterministic():
    """Refuses operations that may give other bits in another run."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
