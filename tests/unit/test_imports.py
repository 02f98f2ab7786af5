"""The pure folders work without fairseq, and do not import it where it is installed."""

import subprocess
import sys

PURE = (
    *("", "functional", "modules", "optim", "metrics", "integrations", "cli.main", "checkpoint", "sources"),
    *("averaging", "f2_conversion", "evaluation", "plots", "report"),
    *("data.binarized", "data.training_counts", "data.vocabulary", "data.tokenizer_vocabulary"),
)


def test_imports_without_fairseq():
    """With fairseq, hydra and omegaconf made impossible to import, in a process of its own."""
    program = f"""
import importlib, sys
for name in ("fairseq", "fairseq_cli", "hydra", "omegaconf"):
    sys.modules[name] = None
for module in {PURE}:
    importlib.import_module(f"agg_fairseq.{{module}}".rstrip("."))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_does_not_load_fairseq():
    program = (
        "import agg_fairseq.functional, agg_fairseq.modules, agg_fairseq.metrics, sys; print('fairseq' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "False\n"
    )


def test_a_cpu_loads_neither_the_fused_form_nor_triton():
    program = """
import sys, torch
from agg_fairseq.functional import gated_cross_entropy
gated_cross_entropy(torch.ones(2, 3), torch.ones(4, 3, requires_grad=True), torch.tensor([1, 3])).loss.backward()
print([name for name in sys.modules if name.endswith("kernels.fused") or name.split(".")[0] == "triton"])
"""
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "[]\n"
