"""The files of configs/ at size tiny, made smaller still, through fairseq-hydra-train."""

import pytest
import torch
from hydra.core.config_store import ConfigStore

from agg_fairseq import criterions, models, tasks  # noqa: F401 — registers, also where it was imported before fairseq
from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main as agg_fairseq
from agg_fairseq.evaluation.training_log import read_log
from agg_fairseq.optim import fairseq_optimizers  # noqa: F401
from tests.configs import ALL_FILES
from tests.conftest import ROOT, called

pytestmark = pytest.mark.slow  # command lines: processes of their own

UPDATES = 6
SHORT = (
    f"optimization.max_update={UPDATES}", "lr_scheduler.warmup_updates=2", "common.log_interval=1",
    "dataset.num_workers=0", "checkpoint.save_interval_updates=2", "checkpoint.keep_interval_updates=-1",
)  # fmt: skip
LM = (
    "task.tokens_per_sample=16", "dataset.max_tokens=64", "model.decoder_layers=1", "model.decoder_embed_dim=16",
    "model.decoder_input_dim=16", "model.decoder_output_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
MT = (
    "dataset.max_tokens=200", "model.encoder_layers=1", "model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=16",
    "model.decoder_layers=1", "model.decoder_embed_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
AWD = (
    "task.tokens_per_sample=16", "dataset.max_tokens=64", "dataset.max_tokens_valid=64", "model.decoder_layers=2",
    "model.decoder_embed_dim=16", "model.decoder_hidden_size=16",
)  # fmt: skip
FEW_WORDS = {  # what is too much for a corpus of 60 words; and epochs of two updates
    "agg-static": ("dataset.max_tokens=512",),
    "agps-agps": ("criterion.agps_rare_rank=40",),
    "agps-base-agps": ("criterion.agps_rare_rank=40",),
    "f2-ul-token-seq": ("criterion.ul_prefix_length=4", "criterion.ul_completion_length=8"),
    "f2-equal-frequency": ("model.f2_classes=3",),
    "f2-equal-token": ("model.f2_classes=3",),
    "agg-study-freeze-until": ("criterion.freeze_until=4",),
    "agps-base-freeze-until": ("criterion.freeze_until=4",),
}
STARTS = {"f2-face": "f2-mle", "f2-ul-token-seq": "f2-ul-token", "f2-transfer": "f2-mle"}
TRANSLATION = [name for name in sorted(ALL_FILES["wmt14_en_de"]) if "-big-" not in name]  # at size tiny that is base
ORDINARY = [name for name in sorted(ALL_FILES["wikitext103"]) if name not in STARTS]


@pytest.fixture(autouse=True)
def _forget_schemas():
    """fairseq stores its own options under the name of what it trains, and hydra would find them in later tests."""
    store = ConfigStore.instance()
    before = dict(store.repo)
    yield
    store.repo = before


def train(folder, name, data, save, *options):
    """The last checkpoint."""
    called(
        "hydra-train", "--config-dir", ROOT / "configs" / folder, "--config-name", name, "size=tiny",
        f"common.user_dir={ROOT / 'agg_fairseq'}", f"task.data={data}", f"checkpoint.save_dir='{save}'", *SHORT,
        *options, *FEW_WORDS.get(name, ()),
    )  # fmt: skip
    last = Checkpoint(save / "checkpoint_last.pt").state
    assert last["optimizer_history"][-1]["num_updates"] == UPDATES and (save / "checkpoint_best.pt").exists()
    updates = read_log(save / "train.log")
    assert [update["num_updates"] for update in updates] == list(range(1, UPDATES + 1))
    if last["cfg"]["criterion"]["_name"] == "agg":  # the first update is not gated, the second is
        assert "rare_tokens" not in updates[0] and updates[1]["rare_tokens"] > 0
    if last["cfg"]["criterion"]["_name"] == "freeze_rare":
        check_frozen(save, last, **{key: last["cfg"]["criterion"][key] for key in ("freeze_parts", "freeze_until")})
    return last


def check_frozen(save, last, freeze_parts, freeze_until):
    """The rows of rare words stay what they were, if they are frozen whole, until they are released."""
    second, fourth = (rare_rows(Checkpoint(next(save.glob(f"checkpoint_*_{update}.pt"))).state) for update in (2, 4))
    assert torch.equal(second, fourth) == (str(freeze_parts) == "all")
    assert torch.equal(fourth, rare_rows(last)) == (str(freeze_parts) == "all" and not freeze_until)


def rare_rows(state):
    """(2, D), of the least frequent words: fairseq's dictionary is sorted by frequency."""
    return state["model"]["decoder.embed_tokens.weight"][-2:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs of all")


@pytest.mark.parametrize("name", ORDINARY)
def test_wikitext103(name, lm_data, folder):
    last = train("wikitext103", name, lm_data, folder / name, *LM)
    fixed = last["extra_state"]["LanguageModelingTask"].get("agg_fairseq", {}).get("static_rare")
    assert (fixed is not None) == (name == "agg-static")
    assert ("decoder.output_projection.class_weight" in last["model"]) == (name[:4] == "f2-f" or "equal" in name)


@pytest.mark.parametrize("name", STARTS)
def test_wikitext103_from_a_model(name, lm_data, folder):
    """It goes on from the weights of another, not from its schedule."""
    start = folder / STARTS[name] / "checkpoint_best.pt"
    if not start.exists():
        train("wikitext103", STARTS[name], lm_data, start.parent, *LM)
    if name == "f2-transfer":
        converted = folder / "f2.pt"
        assert not agg_fairseq(
            ["convert-to-f2", "--path", str(start), "--data", str(lm_data), "--output", str(converted)]
        )
        start = converted
    save = folder / name
    rate = "optimization.lr=[1e-9]"  # the weights are still those that it started from
    last = train("wikitext103", name, lm_data, save, *LM, f"checkpoint.finetune_from_model='{start}'", rate)
    expected = Checkpoint(start).state["model"]
    assert expected.keys() == last["model"].keys()
    for key, value in expected.items():
        torch.testing.assert_close(last["model"][key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", TRANSLATION)
def test_wmt14(name, mt_data, folder):
    last = train("wmt14_en_de", name, mt_data, folder / name, *MT)
    assert last["cfg"]["task"]["source_lang"] == ("de" if "de-en" in name else "en")


@pytest.mark.parametrize("name", sorted(ALL_FILES["wikitext2"]))
def test_wikitext2(name, lm_data, folder):
    tuned, start = name.endswith("-finetune"), []
    if tuned:
        train("wikitext2", name.removesuffix("-finetune"), lm_data, folder / f"start-{name}", *AWD)
        start = [f"checkpoint.finetune_from_model='{folder / f'start-{name}' / 'checkpoint_best.pt'}'"]
    last = train("wikitext2", name, lm_data, folder / f"lstm-{name}", *AWD, *start)
    assert last["cfg"]["criterion"]["_name"] == name.removesuffix("-finetune").removeprefix("cosreg-")
    assert last["last_optimizer_state"]["param_groups"][0]["averaging"] == tuned


def test_wikitext2_at_the_papers_size_with_smaller_layers(lm_data, folder):
    """The options of NT-ASGD under fairseq-hydra-train."""
    paper = ("optimization.max_update=6", "common.cpu=true", "size=paper", *AWD)
    arguments = [
        "--config-dir", ROOT / "configs" / "wikitext2", "--config-name", "cosreg-cosreg",
        f"common.user_dir={ROOT / 'agg_fairseq'}", f"task.data={lm_data}", f"checkpoint.save_dir='{folder / 'sgd'}'",
        "common.log_interval=1", *paper,
    ]  # fmt: skip
    called("hydra-train", *arguments)
    state = Checkpoint(folder / "sgd" / "checkpoint_last.pt").state
    assert state["optimizer_history"][-1]["optimizer_name"] == "FairseqNTASGD"
    assert [update["lr"] for update in read_log(folder / "sgd" / "train.log")] == [30] * 6
