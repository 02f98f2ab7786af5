import pytest


@pytest.fixture
def data_for(lm_data, mt_data):
    """The binarized corpus that the options of a training need."""
    return lambda options: lm_data if "language_modeling" in options else mt_data


@pytest.fixture
def checkpoint(lm_runs):
    return lm_runs / "mle" / "checkpoint_best.pt"
