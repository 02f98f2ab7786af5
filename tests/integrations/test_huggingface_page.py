"""What README.md and docs/huggingface.md show of transformers, run as it is pasted, and its
example."""

import re
import runpy

import pytest
import torch
from transformers import Trainer

from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import isotropy
from agg_fairseq.functional import cosine_regularizer
from agg_fairseq.gating import AggGating, AgpsGating
from agg_fairseq.integrations import label_counts
from agg_fairseq.integrations.transformers import GatedHead
from tests.conftest import ROOT, diff_sides, table_cells, write_lines, zipf_text
from tests.small_transformers import VOCABULARY, batch, dataset, gated_head, gpt2, trainer, untied

PAGE = (ROOT / "docs" / "huggingface.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text() + PAGE, re.DOTALL)
DIFFS = [sides for sides in diff_sides(PAGE) if "GatedHead" in sides[1]]


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"]


@pytest.mark.parametrize(
    "sides", DIFFS, ids=lambda sides: "loop" if "commit_update" in sides[1] else "Trainer"
)
def test_diffs(sides, tmp_path):
    found = []
    for program in sides:
        model = gpt2()
        names = {"model": model, "args": trainer(model, tmp_path).args, "train": dataset()}
        names["batches"] = [batch(seed=seed) for seed in range(4)]
        names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
        exec(program, {"vocabulary": VOCABULARY, **names})
        found.append(model.lm_head.weight.detach())
    assert not found[0].equal(found[1])
    torch.testing.assert_close(found[0], found[1], rtol=0.3, atol=0.3)


@pytest.mark.parametrize("make", [gpt2, untied])
def test_another_beta2_of_the_embedding(make):
    [program] = [text for text in PROGRAMS if "optimizer = torch.optim.AdamW(" in text]
    names = {"torch": torch, "model": make()}
    exec(program, names)
    others, own = names["optimizer"].param_groups
    assert (others["betas"], own["betas"]) == ((0.9, 0.98), (0.9, 0.999))
    [weight] = own["params"]
    assert weight is names["model"].get_output_embeddings().weight
    trained = {*others["params"], weight}
    assert trained == {*names["model"].parameters()} and len(trained) == len(others["params"]) + 1


def test_muon_with_trainer(tmp_path):
    """Both optimizers follow the schedule, and a training with a GatedHead resumes bit for bit."""
    [program] = [text for text in PROGRAMS if "class Both" in text]
    ends = []
    for resume in (None, str(tmp_path / "checkpoint-4")):
        model = gpt2()
        settings = trainer(model, tmp_path, save_strategy="steps", save_steps=4).args
        names = {"torch": torch, "Trainer": Trainer, "model": model, "args": settings}
        names["train"] = dataset()
        exec(program, names)
        training = names["trainer"]
        training.add_callback(gated_head(model, window=3))
        before = [parameter.detach().clone() for parameter in model.parameters()]
        training.train(resume_from_checkpoint=resume)
        after = list(model.parameters())
        assert not any(map(torch.equal, before, after))
        for one in training.optimizer.optimizer.optimizers:
            assert [group["lr"] for group in one.param_groups] == [0] * len(one.param_groups)
        ends.append([parameter.detach().clone() for parameter in after])
    assert all(map(torch.equal, *ends))


def test_table_of_methods():
    section = PAGE.split("## Rules")[1].split("\n## ")[0]
    calls = re.findall(r"^\| `(GatedHead\(.*?\))` \|", section, re.MULTILINE)
    assert len(calls) == 3
    for call in calls:
        names = {"GatedHead": GatedHead, "AggGating": AggGating, "AgpsGating": AgpsGating}
        names |= {"label_counts": label_counts, "train": dataset()}
        names |= {"model": gpt2(), "V": VOCABULARY, "R": 20}
        eval(call, names)
        names["model"](**batch()).loss.backward()


def test_a_loss_with_a_term_of_the_embedding(tmp_path):
    """The term counts once per update, of which a micro-batch has a share."""
    model, given = gpt2(), batch(ignored=[(0, 3)])
    [program] = [text for text in PROGRAMS if "cosine_regularizer" in text]
    names = {"model": model}
    exec(program, names)
    training = trainer(model, tmp_path, gated_head(model))
    training.compute_loss_func = names["loss"]
    found = training.compute_loss(model, {**given}, num_items_in_batch=2 * 32)
    expected = (model(**given).loss + cosine_regularizer(model.lm_head.weight)) / 2
    torch.testing.assert_close(found, expected)
    training.train()


@pytest.mark.slow
def test_example_prints_a_row_for_each_model(tmp_path, capsys):
    """With a small text and few updates; and a command measures the folders that it leaves."""
    for split, lines in (("train", 300), ("test", 60)):
        write_lines(tmp_path / f"wiki.{split}.tokens", zipf_text(lines))
    options = "--vocabulary 300 --updates 4 --block 16 --batch 4 --rare-fraction 0.3".split()
    example("huggingface")(["--data", str(tmp_path), "--output", str(tmp_path / "out"), *options])
    names = ["mle", "mle-beta2-0.999", "agg", "bias-fixed-agg", "bias-fixed-beta2-0.999"]
    printed = {}
    for name, *cells in table_cells(capsys.readouterr().out):
        if name in names:
            printed[name] = tuple(cells)
    assert list(printed) == names and len({*printed.values()}) == 5
    models = open_models([tmp_path / "out" / "mle", tmp_path / "out" / "agg"])
    for name, row in isotropy(models, train_text=tmp_path / "wiki.train.tokens").rows.items():
        assert f"{row['isoscore']['total']:.3f}" == printed[name][5]


@pytest.mark.slow
def test_the_constants_of_the_fine_tuned_model(tmp_path, capsys):
    """They move probability to the tokens that the new text lacks, and do not change the perplexity
    among them."""
    for name, count in (("train", 300), ("valid", 60), ("test", 60)):
        write_lines(tmp_path / f"wiki.{name}.tokens", zipf_text(count))
    for name, count in (("new", 200), ("new-test", 60)):
        write_lines(tmp_path / name, zipf_text(count, words=8))
    texts = ("--old", tmp_path, "--new", tmp_path / "new", tmp_path / "new-test")
    options = ("--output", tmp_path / "out", "--vocabulary", 300, "--updates", 12)
    example("fine_tuning")(list(map(str, (*texts, *options))))
    printed = {}
    for name, *cells in table_cells(capsys.readouterr().out):
        if len(cells) == 5 and name:
            printed[name] = list(map(float, cells))
    assert len(printed) == 10 and "before" in printed
    for model in ("mle", "agg", "untied"):
        plain, some, whole = printed[model], printed[f"{model}, 40%"], printed[f"{model}, 100%"]
        assert plain[3] == some[3] == whole[3] and plain[1] > some[1] > whole[1]
        assert abs(whole[4] - 1) < abs(plain[4] - 1)
