"""What the pages name is there, and what is there is named: criterions, architectures, optimizers,
packages."""

import re

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.utils import import_user_module

import agg_fairseq
from tests.conftest import ROOT
from tests.unit.test_pages import PAGES, README


def test_the_pages_name_every_criterion_and_nothing_that_is_not_there():
    agg_fairseq.register()
    import_user_module(type("Options", (), {"user_dir": str(ROOT / "examples" / "awd_lstm")}))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for option, registry in (
        ("criterion", CRITERION_REGISTRY),
        ("arch", ARCH_MODEL_REGISTRY),
        ("optimizer", OPTIMIZER_REGISTRY),
    ):
        named = set(re.findall(rf"--{option} (\w+)", text))
        assert len(named) > 3 and named <= set(registry), option
    ours = {name for name, one in CRITERION_REGISTRY.items() if one.__module__.startswith("agg_f")}
    assert len(ours) == 9 and ours <= set(re.findall(r"(\w+)`", README.read_text(encoding="utf-8")))


def test_every_package_is_required_by_an_extra():
    required = set(re.findall(r'"([\w-]+)[">=]', (ROOT / "setup.py").read_text(encoding="utf-8")))
    assert required >= set(
        "ve-fairseq torch sacrebleu sentencepiece fastBPE subword-nmt sacremoses".split()
    )
