"""The diffs of examples/nanogpt.md, applied to a script in the style of nanoGPT."""

from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, diff_sides

SCRIPT = Path(__file__).with_name("nanogpt_style.py")


def changed_script():
    """Each diff must fit exactly one place."""
    source = SCRIPT.read_text()
    for before, after in diff_sides((ROOT / "examples" / "nanogpt.md").read_text()):
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    return source


def train(source, folder, **overrides):
    namespace = {"overrides": {"out_dir": str(folder), **overrides}}
    exec(compile(source, "train.py", "exec"), namespace)
    return namespace


def test_trains_with_gates_also_distributed(tmp_path):
    own, gated = train(SCRIPT.read_text(), tmp_path), train(changed_script(), tmp_path)
    # the first update is not gated
    assert gated["losses"][0] == pytest.approx(own["losses"][0], rel=1e-5)
    assert gated["losses"] == pytest.approx(own["losses"], rel=0.1)
    assert not torch.allclose(gated["model"].lm_head.weight, own["model"].lm_head.weight, atol=1e-4)
    counter = gated["gating"].counter
    assert (counter.updates, int(counter.appearances.sum())) == (6, 6 * 2 * 3 * 8)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        distributed = train(changed_script(), tmp_path, ddp=True)
    finally:
        torch.distributed.destroy_process_group()
    assert distributed["losses"] == pytest.approx(gated["losses"], rel=1e-5)
    assert distributed["gating"].counter.appearances.equal(counter.appearances)


def test_resumes_bit_for_bit(tmp_path):
    whole = train(changed_script(), tmp_path)
    train(changed_script(), tmp_path, max_iters=4)  # its last checkpoint is of update 3
    resumed = train(changed_script(), tmp_path, init_from="resume")
    assert resumed["losses"] == whole["losses"][3:]
    assert resumed["model"].lm_head.weight.equal(whole["model"].lm_head.weight)
    assert resumed["gating"].counter.appearances.equal(whole["gating"].counter.appearances)
