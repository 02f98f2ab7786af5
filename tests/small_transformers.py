"""Small causal language models of transformers with random weights, and data for them."""

import sys

import torch

from agg_fairseq.gating import AggGating

try:
    import torchaudio  # noqa: F401 — a requirement of fairseq; transformers imports it where it is installed
# missing, or built for another torch: transformers could not be imported with it
except (ImportError, OSError):
    sys.modules["torchaudio"] = None

VOCABULARY = 61


def gpt2(**options):
    """Tied to the input embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 32, "vocab_size": VOCABULARY}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **dropout, **special, **options})).train()


def llama_like(kind, **options):
    """A model whose configuration takes the names of Llama's: "Llama", "Gemma2", …; "default"
    leaves a value out."""
    import transformers

    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32, "head_dim": 8,
        "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    given = {name: value for name, value in {**sizes, **options}.items() if value != "default"}
    config = getattr(transformers, f"{kind}Config")(**given)
    return getattr(transformers, f"{kind}ForCausalLM")(config).train()


def untied():
    return llama_like("Llama", num_hidden_layers=2, tie_word_embeddings=False)


def gated_head(model, rule=AggGating, tokenizer=None, **options):
    """A GatedHead with a rule for the vocabulary of the model; by AGG, a share of 0.3 is rare."""
    from agg_fairseq.integrations.transformers import GatedHead

    if rule is AggGating:
        options = {"rare_fraction": 0.3, **options}
    vocabulary = model.config.get_text_config().vocab_size
    return GatedHead(model, rule(vocabulary, **options), tokenizer=tokenizer)


def gradients(model, loss):
    """Of the parameters that have one."""
    model.zero_grad()
    loss.backward()
    named = model.named_parameters()
    return {name: one.grad.clone() for name, one in named if one.grad is not None}


def word_tokenizer(words):
    """Splits at spaces; the first word has the index 0, and the unknown one is <unk>."""
    import tokenizers

    model = tokenizers.models.WordLevel({word: row for row, word in enumerate(words)}, "<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return tokenizer


def save_word_tokenizer(folder, size):
    """Writes a tokenizer.json of whole words: <unk>, then w0, w1, …; `size` tokens in all."""
    words = ["<unk>", *(f"w{index}" for index in range(size - 1))]
    word_tokenizer(words).save(str(folder / "tokenizer.json"))


def batch(rows=3, length=12, ignored=(), seed=0):
    """Token indices and labels, under something like Zipf's law; `ignored` positions have the label
    −100."""
    generator = torch.Generator().manual_seed(seed)
    weights = 1 / torch.arange(1, VOCABULARY + 1.0)
    drawn = torch.multinomial(weights, rows * length, replacement=True, generator=generator)
    ids = drawn.view(rows, length)
    labels = ids.clone()
    for row, position in ignored:
        labels[row, position] = -100
    return {"input_ids": ids, "labels": labels}


def dataset(rows=22, length=12, seed=1):
    ids = batch(rows, length, seed=seed)["input_ids"]
    return [{"input_ids": row, "labels": row.clone()} for row in ids]


def trainer(model, folder, gated=None, examples=None, **options):
    from transformers import Trainer, TrainingArguments

    given = {
        "output_dir": str(folder), "use_cpu": True, "report_to": [], "disable_tqdm": True, "seed": 5,
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "num_train_epochs": 2,
        "learning_rate": 0.01, "save_strategy": "no", "logging_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    arguments = TrainingArguments(**{**given, **options})
    examples = dataset() if examples is None else examples
    data = {"train_dataset": examples, "eval_dataset": examples}
    return Trainer(model, arguments, **data, callbacks=[gated] if gated else [])
