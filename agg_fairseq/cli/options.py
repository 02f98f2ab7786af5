"""Arguments that several commands have: models, data, how tokens are grouped and split."""

import argparse
from pathlib import Path
from typing import Any

from ..checkpoints import Checkpoint, EmbeddingSource
from ..checkpoints.fairseq_checkpoint import checkpoint_file
from ..checkpoints.opening import open_models
from ..data.subwords import FILES, TokenizerOptions
from ..data.vocabulary import GROUP_MEANINGS, GROUPINGS
from ..names import unique_names


def select(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Some of the arguments, as options of a function whose parameters have the same names."""
    return {name: getattr(arguments, name) for name in names}


def add_inputs(parser: argparse.ArgumentParser, metavar: str, help_text: str, name: str = "that of its folder") -> None:
    """What is compared side by side, and `--name`, with its default."""
    parser.add_argument("inputs", nargs="+", metavar=metavar, help=help_text)
    parser.add_argument("--name", nargs="+", metavar="NAME", help=f"a name for each {metavar} (default: {name})")


def files_by_name(arguments: argparse.Namespace, part: str) -> dict[str, Path]:
    """The inputs by their names, which are by default this part of their paths (`names.unique_names`)."""
    names = unique_names(arguments.inputs, arguments.name, part)
    return dict(zip(names, map(Path, arguments.inputs), strict=True))


def add_models(parser: argparse.ArgumentParser) -> None:
    """The models whose embeddings are measured, and `--matrix`."""
    models = (
        "checkpoints of fairseq-train or folders of runs, or models of transformers: folders that save_pretrained "
        "wrote, .safetensors files, or an index of several such files"
    )
    add_inputs(parser, "MODEL", models)
    matrix = "measure this parameter of the models of transformers (default: the output embedding)"
    parser.add_argument("--matrix", metavar="PARAMETER", help=matrix)


def models_by_name(arguments: argparse.Namespace) -> dict[str, EmbeddingSource]:
    """The models of `add_models`, opened."""
    return open_models(arguments.inputs, arguments.name, arguments.matrix)


def add_model(parser: argparse.ArgumentParser) -> None:
    """A single model of fairseq."""
    parser.add_argument("model", metavar="MODEL", help="checkpoint of fairseq-train, or the folder of a run")


def open_model(arguments: argparse.Namespace) -> Checkpoint:
    """The model of `add_model`, opened."""
    return Checkpoint(checkpoint_file(arguments.model), training_state=False)


def add_data(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """`--data`."""
    data = "folder of fairseq-preprocess, with the training split, in which tokens are counted"
    parser.add_argument("--data", required=required, metavar="DATA", help=data)


def add_train_text(parser: argparse.ArgumentParser) -> None:
    """`--train-text`, which models of transformers have instead of `--data`."""
    text = "for models of transformers, text in UTF-8 to count tokens in, instead of DATA"
    parser.add_argument("--train-text", metavar="FILE", help=text)


def add_split(parser: argparse.ArgumentParser, help_text: str, default: str = "test") -> None:
    """`--split`."""
    parser.add_argument("--split", default=default, metavar="SPLIT", help=help_text)


def add_valid_split(parser: argparse.ArgumentParser) -> None:
    """`--valid-split`."""
    valid_split = "split whose loss the learning curves show"
    parser.add_argument("--valid-split", default="valid", metavar="SPLIT", help=valid_split)


def add_groups(parser: argparse.ArgumentParser, default: str | None = "types") -> None:
    """`--groups`."""
    meanings = "; ".join(f"with {name}, {meaning}" for name, meaning in GROUP_MEANINGS.items()).replace("%", "%%")
    groups = f"which tokens are frequent, medium and rare: {meanings}"
    parser.add_argument("--groups", choices=GROUPINGS, default=default, help=groups)


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """`--bpe`, and the files of each kind of tokenizer."""
    add = parser.add_argument
    bpe = "how words are split into tokens of the dictionary; with words, each word is one token"
    add("--bpe", choices=FILES, default="words", help=bpe)
    add("--gpt2-encoder-json", metavar="FILE", help="encoder.json of gpt2")
    add("--gpt2-vocab-bpe", metavar="FILE", help="vocab.bpe of gpt2")
    add("--sentencepiece-model", metavar="FILE", help="model of sentencepiece")
    add("--bpe-codes", metavar="FILE", help="codes of fastbpe and of subword_nmt")


def tokenizer_options(arguments: argparse.Namespace) -> TokenizerOptions:
    """The options of `add_tokenizer`."""
    files = select(arguments, "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model", "bpe_codes")
    return TokenizerOptions(arguments.bpe, **files)


def add_words(parser: argparse.ArgumentParser) -> None:
    """`--words`."""
    words = "words whose neighbors are shown (default: the three most frequent of the rare tokens that can be words)"
    parser.add_argument("--words", nargs="+", metavar="WORD", help=words)


def add_unused(parser: argparse.ArgumentParser) -> None:
    """`--unused`."""
    unused = "rows of tokens that are known to be unused (default: those that the vocabulary knows)"
    parser.add_argument("--unused", type=int, nargs="+", metavar="ROW", help=unused)


def add_datasets(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """`--datasets`."""
    datasets = (
        "files with a line `word<TAB>word<TAB>score` for each pair; folders of such files; and names, MEN, WS353, "
        "RG65, RW, which are looked for as NAME.txt in $AGG_DATA/word-similarity"
    )
    parser.add_argument("--datasets", nargs="+", required=required, metavar="DATASET", help=datasets)


def add_translations(parser: argparse.ArgumentParser) -> None:
    """`--reference` and `--moses`, of logs of fairseq-generate."""
    add = parser.add_argument
    add("--reference", metavar="FILE", help="untokenized target side of the split, for sacreBLEU (default: none)")
    moses = "language of Moses tokens in the translations, such as de, to detokenize (default: they are as they are)"
    add("--moses", metavar="LANG", help=moses)


def add_generation(parser: argparse.ArgumentParser) -> None:
    """How prefixes are continued."""
    add = parser.add_argument
    add("--prefix-length", type=int, default=50, metavar="N", help="tokens that the model is given")
    add("--length", type=int, default=100, metavar="N", help="tokens of a continuation and of a reference")
    add("--max-texts", type=int, metavar="N", help="continue only the first N prefixes (default: all)")
    topk = "draw each token from the K of the highest probability (default: take the most probable one)"
    add("--topk", type=int, metavar="K", help=topk)
    add("--seed", type=int, default=1, metavar="N", help="of the random numbers, 0 to 2⁶³ − 1")


def add_max_tokens(parser: argparse.ArgumentParser) -> None:
    """`--max-tokens`."""
    max_tokens = "tokens per batch (default: 2048, or a block where that is longer)"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=max_tokens)


def add_device(parser: argparse.ArgumentParser) -> None:
    """`--device`."""
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")
