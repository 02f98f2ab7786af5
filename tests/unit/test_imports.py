"""Imports point one way, and what is pure PyTorch works without fairseq."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import agg_fairseq

PACKAGE = Path(agg_fairseq.__file__).parent
ROWS = """
errors
files names columns
result
functional
modules optim
f2
objective
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
"""A module imports only from its own folder and from rows above its own; of several names that fit
a module, the longest counts."""
OF_FAIRSEQ = ("fairseq", "fairseq_cli", "hydra", "omegaconf")
MAY_IMPORT_FAIRSEQ = ("fairseq_plugin", "data.binarized", "data.subwords")
"""All that depends on fairseq; in `data`, the readers of its binarized splits and dictionaries, and of
its sub-words, which import it when they are called."""
PURE = """
functional modules objective optim f2 metrics integrations checkpoints data
data.binarized data.vocabulary data.tokenizer_vocabulary evaluation plots report cli.main
""".split()


def row_of(module):
    """The number of a module's row, and the name that stands for it there."""
    found = [(name, number) for number, row in enumerate(ROWS.split("\n")) for name in row.split()]
    fitting = [(name, number) for name, number in found if f"{module}.".startswith(f"{name}.")]
    return max(fitting, key=lambda one: len(one[0]))[::-1]


def imported_by(module, path):
    """The modules of the package that a file imports, also inside functions."""
    package = f"agg_fairseq.{module}"
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                file = PACKAGE.parent / f"{source}.{alias.name}".replace(".", "/")
                is_module = file.is_dir() or file.with_suffix(".py").is_file()
                name = f"{source}.{alias.name}" if is_module else source
                yield name.removeprefix("agg_fairseq").removeprefix(".")


def modules():
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if module not in ("__init__", "__main__"):
            yield module, path


def test_fairseq_is_imported_in_one_room():
    importing = set()
    for module, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            if any(name.partition(".")[0] in OF_FAIRSEQ for name in names):
                importing.add(module)
    fitting = {name for name in importing if f"{name}.".startswith(MAY_IMPORT_FAIRSEQ)}
    assert importing == fitting and set(MAY_IMPORT_FAIRSEQ[1:]) < importing


def test_imports_point_one_way():
    wrong = []
    for module, path in modules():
        row, name = row_of(module)
        for other in filter(None, imported_by(module, path)):
            its_row, its_name = row_of(other)
            if its_name != name and its_row >= row:
                wrong.append(f"{module} imports {other}")
    assert not wrong


def test_imports_without_fairseq_and_transformers():
    """With all of both made impossible to import, in a process of its own."""
    program = f"""
import importlib, sys, torch
for name in ("fairseq", "fairseq_cli", "hydra", "omegaconf", "transformers", "accelerate", "safetensors"):
    sys.modules[name] = None
from agg_fairseq.functional import gated_cross_entropy
gated_cross_entropy(torch.ones(2, 3), torch.ones(4, 3, requires_grad=True), torch.tensor([1, 3])).backward()
for module in {PURE}:
    importlib.import_module(f"agg_fairseq.{{module}}")
try:
    import agg_fairseq.integrations.transformers
except ImportError as error:
    assert "needs transformers 5" in str(error) and ".[transformers]" in str(error)
else:
    raise AssertionError("transformers was imported")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
