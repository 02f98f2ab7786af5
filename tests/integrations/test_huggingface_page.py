"""What README.md and docs/huggingface.md show of transformers, run as it is pasted, and its
example."""

import re
import runpy

import pytest
import torch

from tests.conftest import ROOT, write_lines, zipf_text
from tests.small_transformers import VOCABULARY, batch, dataset, gpt2, llama_like, trainer

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install '.[transformers]'")

from transformers import Trainer

from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import isotropy, neighbors

PAGE = (ROOT / "docs" / "huggingface.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text() + PAGE, re.DOTALL)
DIFFS = {diff for diff in re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL) if "GatedLoss" in diff}


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"]


def sides(diff):
    """The program before and after."""
    lines = diff.splitlines()
    return ("\n".join(line[1:] for line in lines if not line.startswith(sign)) for sign in "+-")


@pytest.mark.parametrize(
    "diff", sorted(DIFFS), ids=lambda diff: "loop" if "commit_update" in diff else "Trainer"
)
def test_diffs(diff, tmp_path):
    found = []
    for program in sides(diff):
        model = gpt2()
        args = trainer(model, tmp_path).args
        names = {
            "model": model,
            "args": args,
            "train": dataset(),
            "batches": [batch(seed=seed) for seed in range(4)],
        }
        names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
        exec("from agg_fairseq.integrations.transformers import GatedLoss\n" + program, names)
        found.append(model.lm_head.weight.detach())
    assert not found[0].equal(found[1])
    torch.testing.assert_close(found[0], found[1], rtol=0.3, atol=0.3)


def test_factorized_head(tmp_path):
    """Loaded, it is tied as before, and has the same logits and texts."""
    model = gpt2()
    names = {
        "model": model,
        "train": dataset(),
        "vocabulary": VOCABULARY,
        "folder": tmp_path / "saved",
    }
    names["args"] = trainer(model, tmp_path).args
    [program] = [text for text in PROGRAMS if "factorize_head" in text]
    exec(program, names)
    loaded = names["model"]
    assert loaded is not model
    for one in (model.eval(), loaded.eval()):
        assert one.lm_head.weight is one.transformer.wte.weight
    assert loaded(**batch()).logits.equal(model(**batch()).logits)
    prompt = batch()["input_ids"][:, :3]
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    assert loaded.generate(prompt, **options).equal(model.generate(prompt, **options))


@pytest.mark.parametrize(
    "make", [gpt2, lambda: llama_like("Llama", tie_word_embeddings=False)], ids=["tied", "untied"]
)
def test_another_beta2_of_the_embedding(make, tmp_path):
    """Adam's second moment of W has it, and that of nothing else; Trainer's schedule is for both
    groups."""
    [program] = [text for text in PROGRAMS if "AdamW(groups" in text]
    model = make()
    names = {"torch": torch, "model": model}
    exec(program, names)
    optimizer, embedding = names["optimizer"], model.get_output_embeddings().weight
    beta2 = {parameter: 0.95 for parameter in model.parameters()} | {embedding: 0.999}
    moments = dict.fromkeys(beta2, 0)
    for seed in range(3):
        model(**batch(seed=seed)).loss.backward()
        for parameter, beta in beta2.items():
            moments[parameter] = beta * moments[parameter] + (1 - beta) * parameter.grad**2
        optimizer.step()
        optimizer.zero_grad()
    for parameter, expected in moments.items():
        torch.testing.assert_close(optimizer.state[parameter]["exp_avg_sq"], expected)
    training = trainer(model, tmp_path)
    Trainer(model, training.args, train_dataset=dataset(), optimizers=(optimizer, None)).train()
    assert len({group["lr"] for group in optimizer.param_groups}) == 1
    assert optimizer.param_groups[0]["lr"] < 1e-3


def test_table_of_objectives():
    from agg_fairseq.integrations import label_counts
    from agg_fairseq.integrations.transformers import GatedLoss

    section = PAGE.split("## Objectives")[1].split("\n## ")[0]
    calls = re.findall(r"^\| `(GatedLoss\(.*?\))` \|", section, re.MULTILINE)
    assert len(calls) == 7
    for call in calls:
        names = {
            "model": gpt2(), "train": dataset(), "V": VOCABULARY, "R": 20,
            "label_counts": label_counts,
        }  # fmt: skip
        eval(call, {"GatedLoss": GatedLoss, **names})
        names["model"](**batch()).loss.backward()


@pytest.mark.slow
def test_example_prints_a_row_for_each_model(tmp_path, capsys):
    """With a small text and few updates; and the commands measure the folders that it leaves."""
    for split, lines in (("train", 300), ("test", 60)):
        write_lines(tmp_path / f"wiki.{split}.tokens", zipf_text(lines))
    options = "--vocabulary 300 --updates 4 --block 16 --batch 4 --rare-fraction 0.3".split()
    example("huggingface")(["--data", str(tmp_path), "--output", str(tmp_path / "out"), *options])
    lines = [
        [cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()
    ]
    names = ("mle", "mle-beta2-0.999", "agg", "bias-fixed-agg", "bias-fixed-beta2-0.999")
    printed = {cells[1]: cells[2:] for cells in lines if len(cells) > 1 and cells[1] in names}
    assert tuple(printed) == names and len(set(map(tuple, printed.values()))) == 5
    models = open_models([tmp_path / "out" / "mle", tmp_path / "out" / "agg"])
    rows = isotropy(models, train_text=tmp_path / "wiki.train.tokens")
    for name in ("mle", "agg"):
        assert f"{rows[name]['isoscore']['total']:.3f}" == printed[name][5]
    found = neighbors(models, None, train_text=tmp_path / "wiki.train.tokens", words=["w3"], topk=2)
    assert all(row["tokens"][0]["count"] > 0 for row in found.rows.values())


@pytest.mark.slow
def test_the_constants_of_the_fine_tuned_model(tmp_path, capsys):
    """They move probability to the tokens that the new text lacks, and do not change the perplexity
    among them."""
    for name, lines in (
        ("wiki.train.tokens", 300),
        ("wiki.valid.tokens", 60),
        ("wiki.test.tokens", 60),
    ):
        write_lines(tmp_path / name, zipf_text(lines))
    for name, lines in (("new", 200), ("new-test", 60)):
        words = [[word for word in line.split() if int(word[1:]) < 8] for line in zipf_text(lines)]
        (tmp_path / name).write_text("".join(" ".join(line) + "\n" for line in words))
    texts = (
        "--old", tmp_path, "--new", tmp_path / "new", tmp_path / "new-test", "--output",
        tmp_path / "out",
    )  # fmt: skip
    example("fine_tuning")([*map(str, texts), *"--vocabulary 300 --updates 12".split()])
    lines = [
        line.strip("| ").split(" | ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| ")
    ]
    printed = {
        name: list(map(float, values))
        for name, *values in (line for line in lines if len(line) == 6)
    }
    models, shares = ("mle", "agg", "untied"), ("", ", 40%", ", 100%")
    assert list(printed) == ["before", *(model + share for model in models for share in shares)]
    for model in models:
        plain, some, whole = (printed[model + share] for share in shares)
        assert plain[3] == some[3] == whole[3] and plain[1] > some[1] > whole[1]
        assert abs(whole[4] - 1) < abs(plain[4] - 1)
