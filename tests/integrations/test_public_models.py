"""Models that transformers saved, measured from their files: the numbers of the model in memory."""

import json
import runpy
import signal
import warnings
from pathlib import Path

import pytest
import torch

from tests.conftest import zipf_text
from tests.small_transformers import VOCABULARY, gpt2, llama_like

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("safetensors", reason="needs safetensors, which transformers brings")

from agg_fairseq import metrics
from agg_fairseq.checkpoints.opening import open_models
from agg_fairseq.checkpoints.transformers_model import PretrainedModel
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import isotropy, neighbors

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "huggingface.py"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["tied", "untied", "tied Llama"])
def test_saved_models(kind, dtype, tmp_path):
    model = gpt2() if kind == "tied" else llama_like("Llama", tie_word_embeddings=kind == "tied Llama")
    model.to(dtype).save_pretrained(tmp_path)
    found = PretrainedModel(tmp_path).output_embedding
    weight = model.get_output_embeddings().weight.detach()
    assert torch.equal(found.saved, weight) and found.saved.dtype == dtype
    assert found.tied is (kind != "untied") and found.description.endswith("(tied)") is (kind != "untied")
    row = isotropy(open_models([tmp_path / "model.safetensors"], ["m"]))["m"]
    assert row["I(W) total"] == metrics.isotropy(weight) and row["S(W)"] == metrics.mean_cosine(weight)


def test_a_model_in_several_files(tmp_path):
    model = llama_like("Llama")
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    opened = PretrainedModel(tmp_path)
    assert torch.equal(opened.output_embedding.weight, model.lm_head.weight)
    assert len(opened._files) <= 2  # of the output and of the input embedding


@pytest.mark.slow
def test_the_tokens_are_those_of_gpt2(tmp_path, shared_data):
    """GPT-2's own tokenizer: ids and counts are those that fairseq's encoder finds in running text."""
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from tokenizers import ByteLevelBPETokenizer

    from agg_fairseq.data.subwords import Tokenizer
    from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary

    files = [str(shared_data / "gpt2-bpe" / name) for name in ("encoder.json", "vocab.bpe")]
    ByteLevelBPETokenizer(*files).save(str(tmp_path / "tokenizer.json"))
    lines = (shared_data / "wikitext-2" / "wiki.valid.tokens").read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(lines[:40])
    (tmp_path / "text").write_text(text, encoding="utf-8")
    vocabulary = TokenizerVocabulary.load(tmp_path / "tokenizer.json", 50_257, tmp_path / "text")
    encoder = get_encoder(*files)
    assert torch.equal(vocabulary.counts, torch.tensor(encoder.encode(text)).bincount(minlength=50_257))
    splitter = vocabulary.splitter(Tokenizer())
    for word in ("river", "homepage", "naïve", "日本語", "x-ray", "Werewolf"):
        assert splitter.indices(word) == encoder.encode(f" {word}")


@pytest.mark.slow
def test_the_example(tmp_path, capsys):
    """Every command takes the folder that examples/huggingface.py leaves, and says what the example says."""
    for split, lines in (("train", 300), ("test", 60)):
        (tmp_path / f"wiki.{split}.tokens").write_text("\n".join(zipf_text(lines)) + "\n")
    options = "--vocabulary 300 --updates 4 --block 16 --batch 4 --rare-fraction 0.3".split()
    runpy.run_path(str(EXAMPLE))["main"](["--data", str(tmp_path), "--output", str(tmp_path / "out"), *options])
    printed = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith(("| MLE", "| AGG"))]
    models = open_models([tmp_path / "out" / "mle", tmp_path / "out" / "agg"])
    rows = isotropy(models, text=tmp_path / "wiki.train.tokens")
    for cells, name in zip(printed, ("mle", "agg"), strict=True):
        expected = [cell.strip() for cell in cells[6:8]]
        assert [f"{rows[name][column]:.3f}" for column in ("I(W) total", "S(W)")] == expected
    found = neighbors(models, None, text=tmp_path / "wiki.train.tokens", words=["w3"], topk=2)
    assert found.details["words"][0]["tokens"][0]["count"] > 0


@pytest.mark.slow
def test_every_decoder_of_transformers(tmp_path):
    """The matrix found in the files is the output embedding of the model, or the files are refused in one line."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from tests.integrations.test_all_decoders import SECONDS, build, too_long

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    found, refused, wrong = [], {}, {}
    for kind, names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        name = names if isinstance(names, str) else names[0]
        signal.alarm(SECONDS)
        try:
            model = build(CONFIG_MAPPING[kind], getattr(transformers, name))
            weight = model.get_output_embeddings().weight.detach()
            model.save_pretrained(tmp_path / name)
        except Exception:  # the sizes do not fit together, or transformers cannot save what it made
            continue
        finally:
            signal.alarm(0)
        try:
            embedding = PretrainedModel(tmp_path / name).output_embedding
        except UserError as error:
            refused[name] = str(error)
            continue
        tied = torch.equal(model.get_input_embeddings().weight, weight)
        if not torch.equal(embedding.saved, weight) or embedding.tied is not tied:
            wrong[name] = embedding.description
        found.append(name)
    print(len(found), json.dumps(refused, indent=1))
    assert not wrong
    assert len(found) >= 100 and VOCABULARY == 61 and main(["isotropy", str(tmp_path / "LlamaForCausalLM")]) == 0
