"""What README and setup.py promise by name."""

import re

import pytest
from fairseq.criterions import CRITERION_REGISTRY

import agg_fairseq
from tests.conftest import ROOT


def test_the_readme_names_every_criterion():
    agg_fairseq.register()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = [name for name, one in CRITERION_REGISTRY.items() if one.__module__.startswith("agg_f")]
    assert len(ours) == 9 and all(f"{name}`" in readme for name in ours)
    assert "--arch transformer_lm_f2" in readme


PACKAGES = "ve-fairseq torch sacrebleu sentencepiece fastBPE subword-nmt sacremoses".split()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_required_by_an_extra(package):
    assert re.search(rf'"{package}[">=]', (ROOT / "setup.py").read_text(encoding="utf-8"))
