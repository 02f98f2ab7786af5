"""What a preparation of a WikiText corpus would do."""

from __future__ import annotations

from collections.abc import Iterator

from . import gpt2_bpe
from .manifest import is_complete
from .stages import is_made
from .wikitext_preparation import Preparation

MEGABYTE = 1_000_000


def plan(preparation: Preparation) -> Iterator[str]:
    """Lines that say which folders would be made, and of what; writes nothing.

    Raises:
        UserError: the output was prepared with other settings.
    """
    yield f"{preparation.corpus.name}, --tokenizer {preparation.tokenizer}, in {preparation.output}"
    if is_complete(preparation.output, preparation.settings()):
        yield "  is complete"
        return
    said = {"text": _text, "tokenizer": _tokenizer, "encoded": _encoded, "data-bin": lambda _: "by fairseq-preprocess"}
    for name in preparation.stages():
        made = is_made(preparation.output / name, preparation.settings())
        yield f"  {name:<10} {'is made' if made else said[name](preparation)}"
    yield "  manifest.json, last"


def _text(preparation: Preparation) -> str:
    corpus = preparation.corpus
    if preparation.source is not None:
        return f"from {preparation.source}"
    return (
        f"from {corpus.zip_url} ({corpus.zip_bytes / MEGABYTE:.0f} MB), else from {corpus.parquet_url('*.parquet')} "
        f"({corpus.shard_bytes / MEGABYTE:.0f} MB), kept in {preparation.downloads}"
    )


def _tokenizer(preparation: Preparation) -> str:
    if preparation.tokenizer == "sentencepiece":
        return f"{preparation.vocabulary:,} sub-words learnt from the training part"
    if preparation.bpe_dir is not None:
        return f"{' and '.join(gpt2_bpe.FILES)} from {preparation.bpe_dir}"
    return (
        f"{' and '.join(gpt2_bpe.FILES)} (1.5 MB) from {', else from '.join(gpt2_bpe.MIRRORS)}, kept in "
        f"{preparation.downloads}"
    )


def _encoded(preparation: Preparation) -> str:
    return f"by {preparation.workers} processes"
