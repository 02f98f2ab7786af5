"""What the project promises by name: packages, folders, objectives, architectures, scripts and commands."""

import re
import shutil

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY

import agg_fairseq
from scripts.data import encode
from tests.conftest import BIN, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")


def test_packages():
    """Each is required by an extra, and what it is for is done by it."""
    for package in ("ve-fairseq", "torch", "sacrebleu", "sentencepiece", "fastBPE", "subword-nmt", "sacremoses"):
        assert re.search(rf'"{package}[">=]', SETUP), package
    assert "import fastBPE" in (ROOT / "scripts" / "data" / "encode.py").read_text(encoding="utf-8")
    assert "corpus_bleu" in (ROOT / "agg_fairseq" / "evaluation" / "bleu.py").read_text(encoding="utf-8")
    assert {"bpe", "sentencepiece", "gpt2", "moses"} <= encode.KINDS.keys()


def test_the_top_level():
    for name in ("setup.py", "agg_fairseq", "scripts", "configs", "tests", "README.md", "LICENSE"):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    "name",
    ["agg", "agps", "cosreg", "f2_softmax", "freeze_rare", "unlikelihood", "unlikelihood_sequence", "face", "mle"],
)
def test_criterions(name):
    agg_fairseq.register()
    assert name in CRITERION_REGISTRY and f"{name}`" in README


def test_the_model_extension():
    agg_fairseq.register()
    assert {"transformer_lm_f2", "transformer_f2", "transformer_lm_f2_gpt2_medium"} <= ARCH_MODEL_REGISTRY.keys()
    assert "--arch transformer_lm_f2" in README


@pytest.mark.parametrize("corpus", ["wikitext103", "wmt14_en_de"])
def test_scripts_of_both_experiments(corpus):
    """What prepares the corpus, trains on it and makes the table of AGG's paper; and a configuration of each method."""
    scripts = {path.name for path in (ROOT / "scripts" / corpus).glob("*.sh")}
    assert {"prepare.sh", {"wikitext103": "agg-table-3.sh", "wmt14_en_de": "agg-table-7.sh"}[corpus]} <= scripts
    assert (ROOT / "scripts" / "train.sh").is_file()
    assert {"agg.yaml", "agps.yaml", "mle.yaml"} <= {path.name for path in (ROOT / "configs" / corpus).glob("*.yaml")}


def test_commands():
    """Each is installed, and README says how it is called."""
    for command in ("agg-fairseq", "fairseq-train", "fairseq-hydra-train", "fairseq-generate", "fairseq-preprocess"):
        assert shutil.which(command, path=BIN), command
    for words in ("fairseq-train", '--user-dir "$(agg-fairseq user-dir)"', "fairseq-generate", "agg-fairseq bleu"):
        assert words in README, words
