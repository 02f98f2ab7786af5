"""Imports point one way, and what is pure PyTorch works without fairseq."""

import ast
import importlib.util

from tests.conftest import ROOT, run_command

PACKAGE = ROOT / "agg_fairseq"
ROWS = """
errors
files names columns
result
functional
modules optim
f2 gating
metrics
data
checkpoints
fairseq_plugin
integrations
evaluation
plots
report
cli
"""
"""A module imports only from its own folder and from rows above its own."""
PURE = """
functional modules gating optim f2 metrics integrations checkpoints data
data.binarized data.vocabulary data.tokenizer_vocabulary evaluation plots report cli.main
""".split()


def imports():
    """Each file of the package, and the names that it imports, also inside functions; of `from a
    import b`, a.b."""
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE)
        package = ".".join(("agg_fairseq", *file.parent.parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            source = ""
            if isinstance(node, ast.ImportFrom):
                relative = "." * node.level + (node.module or "")
                source = importlib.util.resolve_name(relative, package) + "."
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    yield file, source + alias.name


def test_fairseq_is_imported_in_one_room():
    """All that depends on it is there, but for the readers of its binarized splits, dictionaries
    and sub-words, which import it when they are called."""
    outside = set()
    for file, name in imports():
        is_fairseq = name.partition(".")[0] in ("fairseq", "fairseq_cli", "hydra", "omegaconf")
        if is_fairseq and file.parts[0] != "fairseq_plugin":
            outside.add(str(file))
    assert outside == {"data/binarized.py", "data/subwords.py"}


def test_imports_point_one_way():
    rows, wrong = {}, []
    for number, row in enumerate(ROWS.split("\n")):
        rows |= dict.fromkeys(row.split(), number)
    for file, name in imports():
        module, own = f"{name}.".split("."), file.with_suffix("").parts[0]
        if module[0] != "agg_fairseq" or module[1] == own or own in ("__init__", "__main__"):
            continue
        if rows.get(module[1], 0) >= rows[own]:
            wrong.append(f"{file} imports {name}")
    assert not wrong


def test_imports_without_fairseq_and_transformers():
    program = f"""
import importlib, sys, torch
for name in ("fairseq", "fairseq_cli", "hydra", "omegaconf", "transformers", "accelerate", "safetensors"):
    sys.modules[name] = None
from agg_fairseq.functional import SmoothedLikelihood, chunked
weight = torch.ones(4, 3, requires_grad=True)
chunked(SmoothedLikelihood(), torch.ones(2, 3), weight, torch.tensor([1, 3]))[0].backward()
for module in {PURE}:
    importlib.import_module(f"agg_fairseq.{{module}}")
try:
    import agg_fairseq.integrations.transformers
except ImportError as error:
    assert "needs transformers 5" in str(error) and ".[transformers]" in str(error)
else:
    raise AssertionError("transformers was imported")
"""
    run_command("python", "-c", program)
