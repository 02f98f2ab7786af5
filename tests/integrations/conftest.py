"""Tests with transformers; without it and accelerate, only those of a script in raw PyTorch."""

from importlib.util import find_spec

collect_ignore_glob = ["test_[!n]*.py"]
if find_spec("transformers") and find_spec("accelerate"):
    collect_ignore_glob = []
