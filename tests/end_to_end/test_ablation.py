"""configs/ablation at tiny size, through the real fairseq-hydra-train."""

import json
import re

import pytest
import torch

from agg_fairseq.cli.checkpoints import open_checkpoint
from tests.conftest import ROOT, run_command

AGG = {"_name": "agg", "agg_alpha": 0.03, "agg_gates": "both", "agg_static_after_epoch": 0}
FREEZE = {"_name": "freeze_rare", "freeze_fraction": 0.2, "freeze_until": 0}
RUNS = {  # per file: what is overridden, what the checkpoint must say
    "table1-mle": ((), {"_name": "mle"}),
    "table1-freeze": ((), FREEZE | {"freeze_parts": "all"}),
    "table2-freeze-b": ((), FREEZE | {"freeze_parts": "b"}),
    "table2-freeze-c": ((), FREEZE | {"freeze_parts": "c"}),
    "table2-freeze-bc": ((), FREEZE | {"freeze_parts": "bc"}),
    "figure2-freeze-until": (("criterion.freeze_until=8",), FREEZE | {"freeze_parts": "all", "freeze_until": 8}),
    "table8-mle": ((), {"_name": "mle"}),
    "table8-agg": ((), AGG),
    "table8-agg-no-g1": ((), AGG | {"agg_gates": "g2"}),
    "table8-agg-no-g2": ((), AGG | {"agg_gates": "g1"}),
    "table9-agg-static": ((), AGG | {"agg_static_after_epoch": 1}),
    "figure5-alpha": (("criterion.agg_alpha=0.05",), AGG | {"agg_alpha": 0.05}),
}
UPDATES = 12


def test_every_file_is_run():
    files = {path.stem for path in (ROOT / "configs" / "ablation").glob("*.yaml")}
    assert files == set(RUNS) | {"shared"}


@pytest.mark.parametrize("name", RUNS)
def test_trains_to_the_end_with_its_criterion(name, lm_data, tmp_path):
    overrides, expected = RUNS[name]
    save = tmp_path / "run"
    printed = run_command(
        "fairseq-hydra-train", "--config-dir", ROOT / "configs" / "ablation", "--config-name", name, "size=tiny",
        f"common.user_dir={ROOT / 'agg_fairseq'}", f"task.data={lm_data}", f"checkpoint.save_dir={save}",
        "checkpoint.save_interval_updates=3", *overrides, cwd=tmp_path,
    ).stdout  # fmt: skip
    last = open_checkpoint(save / "checkpoint_last.pt")
    assert last["optimizer_history"][-1]["num_updates"] == UPDATES and (save / "checkpoint_best.pt").exists()
    found = last["cfg"]["criterion"]
    assert {key: found[key] for key in expected} == expected
    updates = [json.loads(line) for line in re.findall(r"\[train_inner\]\[INFO\] - (\{.*\})", printed)]
    assert [int(update["num_updates"]) for update in updates] == list(range(1, UPDATES + 1))
    if expected["_name"] == "agg":
        check_rare_group(updates, last, static=expected["agg_static_after_epoch"])
    else:
        check_rare_rows(save, last, frozen=expected if expected.get("freeze_parts") == "all" else None)


def check_rare_group(updates, last, static):
    """The first update is not gated, the second is; a static group is part of the checkpoint."""
    assert updates[0]["rare_tokens"] == "0" and int(updates[1]["rare_tokens"]) > 0
    fixed = last["extra_state"]["LanguageModelingTask"]["agg_fairseq"]["static_rare"]
    assert (fixed is not None) == bool(static)


def check_rare_rows(save, last, frozen):
    """Rare tokens' rows move from one checkpoint to the next, unless they are frozen."""
    third, sixth = (rare_rows(open_checkpoint(next(save.glob(f"checkpoint_*_{update}.pt")))) for update in (3, 6))
    assert torch.equal(third, sixth) == bool(frozen)
    assert torch.equal(sixth, rare_rows(last)) == bool(frozen and not frozen["freeze_until"])


def rare_rows(state):
    """(3, D), of the least frequent words: fairseq's dictionary is sorted by frequency, 60 words after 4 others."""
    return state["model"]["decoder.embed_tokens.weight"][61:64]
