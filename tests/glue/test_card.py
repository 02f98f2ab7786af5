"""What README promises by name: packages, objectives, architectures and commands."""

import re
import shutil

import agg_fairseq
from agg_fairseq.data.subwords import FILES
from tests.conftest import BIN, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_the_readme_names_is_there():
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY

    agg_fairseq.register()
    for name in (
        "agg", "agps", "cosreg", "f2_softmax", "freeze_rare", "unlikelihood",
        "unlikelihood_sequence", "face",
    ):  # fmt: skip
        assert name in CRITERION_REGISTRY and f"{name}`" in README
    assert {
        "transformer_lm_f2",
        "transformer_f2",
        "transformer_lm_f2_gpt2_medium",
    } <= ARCH_MODEL_REGISTRY.keys()
    assert "--arch transformer_lm_f2" in README
    assert {"fastbpe", "sentencepiece"} <= FILES.keys()  # --bpe of the commands
    for command in (
        "agg-fairseq",
        "fairseq-train",
        "fairseq-hydra-train",
        "fairseq-generate",
        "fairseq-preprocess",
    ):
        assert shutil.which(command, path=BIN), command


def test_packages_are_required_by_an_extra():
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for package in (
        "ve-fairseq", "torch", "sacrebleu", "sentencepiece", "fastBPE", "subword-nmt", "sacremoses",
    ):  # fmt: skip
        assert re.search(rf'"{package}[">=]', setup), package
