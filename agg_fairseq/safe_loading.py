"""Checkpoints of fairseq-train under torch >= 2.6, which unpickles known types only."""

from __future__ import annotations

import argparse

import torch


def allow_namespaces() -> None:
    """Lets `torch.load(weights_only=True)` open checkpoints that hold an `argparse.Namespace`.

    `fairseq-train` saves the options of its older models, the translation transformers among them, in one. It is a
    plain record of values; but torch >= 2.6 refuses it unless told, and with it every resume and every
    `fairseq-generate` of such a model, whatever the criterion.
    """
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals([argparse.Namespace])
