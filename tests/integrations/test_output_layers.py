"""A fixed log-unigram bias of the output layer: trained, saved and loaded."""

import copy
import logging

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.testing import assert_close

from agg_fairseq.errors import UserError
from agg_fairseq.functional import log_unigram
from agg_fairseq.integrations import add_log_unigram, label_counts, load_pretrained
from tests.small_transformers import (
    VOCABULARY,
    batch,
    dataset,
    gated_head,
    gpt2,
    llama_like,
    untied,
    word_tokenizer,
)


def test_output_layers_that_are_refused():
    with_bias = llama_like("Phi", head_dim="default")
    before = with_bias.lm_head.bias.clone()
    with pytest.raises(ValueError, match="expected counts of 61 tokens"):
        add_log_unigram(gpt2(), torch.ones(3))
    with pytest.raises(UserError, match="found one with a bias"):
        add_log_unigram(with_bias, torch.ones(VOCABULARY))
    assert with_bias.lm_head.bias.equal(before) and with_bias.lm_head.bias.requires_grad


def test_changed_saved_and_loaded(tmp_path, caplog):
    """In several files, of another name; transformers misses nothing."""
    model, given = gpt2(), batch()
    add_log_unigram(model, label_counts(dataset(), VOCABULARY))
    model.eval().save_pretrained(tmp_path, max_shard_size="5KB")
    index = tmp_path / "model.safetensors.index.json"
    index = index.rename(tmp_path / "other.safetensors.index.json")
    monitored = logging.getLogger("transformers")
    monitored.addHandler(caplog.handler)
    loaded = load_pretrained(index)
    monitored.removeHandler(caplog.handler)
    assert caplog.text == "" and type(loaded) is type(model)
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    loaded.save_pretrained(tmp_path / "again")
    for again in (loaded, load_pretrained(tmp_path / "again")):
        assert again(**given).logits.equal(model(**given).logits)
        assert again.state_dict().keys() == model.state_dict().keys()
    loaded.resize_token_embeddings(VOCABULARY + 1)
    assert loaded.lm_head.bias[-1] == loaded.lm_head.bias.min()
    assert "bias" in dict(loaded.lm_head.named_buffers())


@pytest.mark.parametrize(
    ("make", "way"), [(gpt2, "deep copy"), (gpt2, "resized"), (untied, "resized"), (untied, "PEFT")]
)
def test_log_unigram_is_trained_with(make, way):
    """The bias stays as it is, with the least of it for tokens that are added; and what GatedHead
    has replaced is as before when it is removed."""
    model, given = make(), batch()
    counts = label_counts(dataset(), VOCABULARY)
    add_log_unigram(model, counts)
    expected = log_unigram(counts)
    if way == "deep copy":
        model = copy.deepcopy(model)
    elif way == "resized":  # also to the same size, and of a copy
        model.resize_token_embeddings(VOCABULARY)
        model = copy.deepcopy(model)
        model.resize_token_embeddings(VOCABULARY + 3, mean_resizing=False)
        model.resize_token_embeddings(VOCABULARY + 1)
        expected = torch.cat([expected, expected.min()[None]])
    else:
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(target_modules=r".*\.0\..*proj", modules_to_save=["lm_head"])
        model = peft.get_peft_model(model, config)
    gated = gated_head(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.get_output_embeddings().weight.detach().clone()
    for seed in range(2):
        model(**batch(seed=seed)).loss.backward()
        optimizer.step()
        gated.commit_update()
    assert gated.gating.counter.appearances.sum() == 2 * 3 * 11
    model, head = gated.model, gated._head()
    assert head.bias.equal(expected) and not isinstance(head.bias, torch.nn.Parameter)
    assert not head.weight.equal(before)
    features = model.base_model(input_ids=given["input_ids"]).last_hidden_state
    logits = F.linear(features, head.weight, head.bias)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten())
    for mode in (True, False):
        assert_close(model.train(mode)(**given).loss, loss, rtol=0, atol=1e-5)
    gated.remove()
    assert model(**given).logits.equal(logits)


def test_label_counts():
    """Of examples, of batches, and of lists; by the collator's labels."""
    data = dataset()
    labels = torch.stack([row["labels"] for row in data])
    expected = labels[:, 1:].flatten().bincount(minlength=VOCABULARY)
    lists = [{"input_ids": [row.tolist()]} for row in labels]
    for examples in (data, torch.utils.data.DataLoader(data, batch_size=4), lists):
        assert label_counts(examples, VOCABULARY).equal(expected)
    words = [f"w{row}" for row in range(VOCABULARY)]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(words), eos_token="w0", pad_token="w0"
    )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    rows = [{"input_ids": row} for row in labels]
    assert expected[0] > 0
    expected[0] = 0  # as padding, which the collator ignores
    assert label_counts(rows, VOCABULARY, collator).equal(expected)
    # of a model with an encoder, or a masked one, the first label is a target too
    for inputs in (torch.zeros(8, 5), torch.zeros(8, labels.size(1))):
        pairs = [
            {"input_ids": one, "labels": row} for one, row in zip(inputs, labels, strict=False)
        ]
        expected = labels[:8].flatten().bincount(minlength=VOCABULARY)
        assert label_counts(pairs, VOCABULARY, shifted=False).equal(expected)
        with pytest.raises(UserError, match="expected shifted=False"):
            label_counts(pairs, VOCABULARY)
