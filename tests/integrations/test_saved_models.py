"""Models that transformers saved, measured from their files: the numbers of the model in memory."""

import pytest
import torch

from tests.small_transformers import gpt2, llama_like

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("safetensors", reason="needs safetensors, which transformers brings")

from agg_fairseq import metrics
from agg_fairseq.checkpoints.opening import open_models
from agg_fairseq.checkpoints.transformers_model import PretrainedModel
from agg_fairseq.evaluation import isotropy


@pytest.mark.parametrize(
    ("kind", "dtype"), [("tied", torch.float16), ("untied", torch.bfloat16), ("tied Llama", torch.float32)]
)
def test_saved_models(kind, dtype, tmp_path):
    model = gpt2() if kind == "tied" else llama_like("Llama", tie_word_embeddings=kind == "tied Llama")
    model.to(dtype).save_pretrained(tmp_path)
    found = PretrainedModel(tmp_path).output_embedding
    weight = model.get_output_embeddings().weight.detach()
    assert torch.equal(found.saved, weight) and found.saved.dtype == dtype
    assert found.tied is (kind != "untied") and found.description.endswith("(tied)") is (kind != "untied")
    row = isotropy(open_models([tmp_path / "model.safetensors"], ["m"]))["m"]
    assert row["I(W) total"] == metrics.isotropy(weight) and row["S(W)"] == metrics.mean_cosine(weight)


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
