"""`evaluation.perplexity` against the definitions, with every kind of output layer, and its command."""

import json
import sys

import pytest
import torch
from omegaconf import OmegaConf
from torch.utils._python_dispatch import TorchDispatchMode

from agg_fairseq.checkpoints import Checkpoint, open_checkpoints
from agg_fairseq.cli.main import main
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import perplexity
from agg_fairseq.evaluation.perplexity import COMPARED
from agg_fairseq.models.from_checkpoint import build_model
from tests.small_trainings import LM, MT, build

GROUPS = ("frequent", "medium", "rare")
KINDS = {
    "softmax": (*LM, "--criterion", "mle"),
    "label-smoothed": (*LM, "--criterion", "mle", "--label-smoothing", "0.1"),
    "adaptive": (
        *(*LM, "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"),
        *("--adaptive-softmax-cutoff", "20,40"),
    ),
    "bias": (*(part.replace("transformer_lm", "transformer_lm_unigram") for part in LM), "--criterion", "mle"),
    "f2": (*(part.replace("transformer_lm", "transformer_lm_f2") for part in LM), "--criterion", "f2_softmax"),
    "translation": (*MT, "--criterion", "mle"),
}


def random_checkpoint(path, data, options):
    """A model with random weights, large enough that its predictions differ from position to position."""
    cfg, _, model, _ = build(data, base=options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    state = {
        "model": model.state_dict(),
        "cfg": OmegaConf.to_container(OmegaConf.create(cfg), resolve=True),
        "args": None,
        "optimizer_history": [{"num_updates": 1, "criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    torch.save(state, path)
    return Checkpoint(path)


@pytest.fixture
def runs(lm_runs):
    return open_checkpoints([lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")])


def literal(checkpoint, data, split):
    """All distributions of a split in float64 (N, V), and the targets (N,)."""
    model, task = build_model(checkpoint, data)
    task.load_dataset(split)
    dataset = task.dataset(split)
    distributions, targets = [], []
    for number in range(len(dataset)):
        sample = dataset.collater([dataset[number]])
        with torch.no_grad():
            output = model(**sample["net_input"])
            distributions.append(model.get_normalized_probs(output, log_probs=True)[0].double().exp())
        targets.append(sample["target"][0])
    return torch.cat(distributions), torch.cat(targets)


@pytest.mark.parametrize("kind", KINDS)
def test_against_the_definition(kind, lm_data, mt_data, tmp_path):
    data, pair, fitted_on = lm_data, None, "test"
    if kind == "translation":  # its rare words are all of the source
        data, pair, fitted_on = mt_data, ("en", "de"), None
    checkpoint = random_checkpoint(tmp_path / "model.pt", data, KINDS[kind])
    result = perplexity({"model": checkpoint}, data, split="valid", calibrate=fitted_on, device="cpu")
    row, found = result["model"], result.details["checkpoints"][0]
    assert (row["IsoScore"] is None) == (kind == "adaptive")

    probabilities, target = literal(checkpoint, data, "valid")
    members = BinarizedVocabulary.load(data, pair).groups("types")
    mass = torch.stack([probabilities[:, members.members(group)].sum(1) for group in GROUPS], 1)  # N x G
    group = members.of_token[target]
    nll, group_nll = (-p.gather(1, of[:, None]).squeeze(1).log() for p, of in ((probabilities, target), (mass, group)))
    for index, name in enumerate((*GROUPS, "total")):
        chosen = group == index if name != "total" else torch.ones_like(group, dtype=torch.bool)
        observed = int(chosen.sum())
        assert result.details["targets"][name] == observed
        titles = [f"{title} {name}" for title in ("PPL", "PPL group", "PPL within")]
        if not observed:
            assert [row[title] for title in titles] == [None] * 3
            continue
        expected = [one[chosen].mean().exp().item() for one in (nll, group_nll, nll - group_nll)]
        assert [row[title] for title in titles] == pytest.approx(expected, rel=1e-5)
        assert row[titles[0]] == pytest.approx(row[titles[1]] * row[titles[2]], rel=1e-12)
        whole = probabilities.sum() if name == "total" else mass[:, index].sum()
        assert found["expected_over_observed"][name] == pytest.approx(whole.item() / observed, rel=1e-5)
        if fitted_on is not None:
            gains = torch.tensor([found["offsets"][name] for name in GROUPS], dtype=torch.float64)
            normalizer = 1 - mass.sum(1) + (mass * gains.exp()).sum(1)  # what is in no group keeps its probability
            calibrated = (nll - gains[group] + normalizer.log())[chosen].mean().exp()
            assert found["calibrated_perplexity"][name] == pytest.approx(calibrated.item(), rel=1e-5)
            assert f"|calibrated-on:{fitted_on}|" in result.signature and found["offsets"]["frequent"] == 0


def test_the_table(runs, lm_data):
    result = perplexity(runs, lm_data, split="valid", device="cpu")
    assert list(result.rows) == ["mle", "agg", "human"]
    mle, human = result["mle"], result["human"]
    assert mle["PPL total"] == result.details["checkpoints"][0]["perplexity"]["total"]
    assert isinstance(mle["PPL total"], float) and isinstance(mle["Uniq total"], int)
    assert human["PPL total"] is None and human["Uniq total"] == result.details["human_uniq"]["total"]
    assert human["E/O rare"] == result.details["frequencies_over_observed"]["rare"]
    assert result.json()["signature"].startswith("split:valid|targets:") and "| mle " in result.table()
    geometry = result.details["checkpoints"][0]["geometry"]
    assert mle["IsoScore"] == geometry["total"]["isoscore"] and mle["I(W) rare"] == geometry["rare"]["isotropy"]
    assert [column.title for column in result.select(COMPARED).columns] == list(COMPARED[:6])


def test_is_formed_in_chunks(runs, lm_data, monkeypatch):
    """No tensor of a batch is larger than a chunk of logits or than W, and the numbers are the same."""
    whole = perplexity({"agg": runs["agg"]}, lm_data, split="valid", calibrate="test", device="cpu")
    monkeypatch.setattr(sys.modules["agg_fairseq.evaluation.scoring"], "CHUNK_ELEMENTS", 7 * 64)
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            found = function(*arguments, **(options or {}))
            sizes.append(found.numel() if isinstance(found, torch.Tensor) else 0)
            return found

    with Sizes():
        chunked = perplexity({"agg": runs["agg"]}, lm_data, split="valid", calibrate="test", device="cpu")
    assert chunked["agg"] == pytest.approx(whole["agg"], rel=1e-6)
    tokens, vocabulary = chunked.details["checkpoints"][0]["tokens"], 64
    assert max(sizes) < tokens * vocabulary, "the logits of the whole batch"


def test_refused(runs, lm_data, mt_data, lm_runs, tmp_path):
    with pytest.raises(UserError, match="found 'human', a row of its own"):
        perplexity({"human": runs["mle"]}, lm_data)
    with pytest.raises(UserError, match="found no split 'dev'"):
        perplexity(runs, lm_data, calibrate="dev")
    translation = {"mt": random_checkpoint(tmp_path / "mt.pt", mt_data, KINDS["translation"])}
    with pytest.raises(UserError, match="with a translation model, which scores pairs of sentences; leave it out"):
        perplexity(translation, mt_data, tokens_per_sample=16)
    state = torch.load(lm_runs / "mle" / "checkpoint_last.pt", weights_only=True)
    for name in ("decoder.output_projection.weight", "decoder.embed_tokens.weight"):
        state["model"][name] = torch.zeros_like(state["model"][name])
    torch.save(state, tmp_path / "zero.pt")
    with pytest.raises(UserError, match="found only zeros"):
        perplexity(open_checkpoints([tmp_path / "zero.pt"]), lm_data, device="cpu")


def test_the_command(lm_runs, lm_data, tmp_path, capsys):
    arguments = ["eval-lm", str(lm_data), "--path", str(lm_runs / "mle"), "--gen-subset", "valid"]
    headers = []
    for options in ((), ("--full",), ("--calibrate", "test", "--json", str(tmp_path / "o.json"))):
        assert main([*arguments, *options]) == 0
        headers.append([cell.strip() for cell in capsys.readouterr().out.splitlines()[0].split("|")[2:-1]])
    assert headers[0] == list(COMPARED[:6]) and headers[2] == list(COMPARED)
    assert {"PPL rare", "PPL group rare", "Uniq total", "I(W−μ)"} < set(headers[1])
    assert set(json.loads((tmp_path / "o.json").read_text())["checkpoints"][0]["offsets"]) == set(GROUPS)
