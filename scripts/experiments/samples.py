"""Generated texts as the papers print them: a few continuations of the test split, with the measures of each alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from agg_fairseq.data.subwords import Tokenizer

from .corpora import prepare
from .experiment import Measure, Method, Value, Workspace
from .measures import text_file

if TYPE_CHECKING:
    from agg_fairseq.result import Result


def samples(workspace: Workspace, method: Method, *, topk: int | None, count: int) -> Result:
    """The first continuations of the test split. They are chosen by their place alone, not by what is in them.

    Args:
        topk: number of most probable tokens that each token is drawn from; None: always the most probable.
        count: number of texts.

    Returns:
        Result: a row without columns. Details: `texts`, for each its `prefix` and `continuation` as people read them,
        `uniq`, the number of distinct tokens of the continuation, and `very_rare`, the percentage of its tokens that
        are among the rarest of the training text, which together make up 10% of it.

    Reference: Yu et al. (2022), Tables 5 and 15; Choi et al. (2020), Table 4 and the appendix.
    """
    from agg_fairseq.data.binarized import count_tokens, load_dictionary
    from agg_fairseq.evaluation.text_metrics import read_texts
    from agg_fairseq.metrics import frequency_mass_groups
    from agg_fairseq.metrics.groups import MASS_GROUPS
    from agg_fairseq.result import Result

    corpus = prepare(workspace, method.model.corpus)
    dictionary = load_dictionary(corpus.binarized)
    of_token = frequency_mass_groups(count_tokens(corpus.binarized, dictionary)).of_token
    read, texts = reader(corpus.tokenizer()), []
    for record in read_texts(text_file(workspace, method, topk=topk, max_texts=count))[:count]:
        tokens = record["continuation"].split()
        rarest = of_token[[dictionary.index(token) for token in tokens]] == MASS_GROUPS.index("very rare")
        texts.append(
            {
                "prefix": read(record["prefix"]),
                "continuation": read(record["continuation"]),
                "uniq": len(set(tokens)),
                "very_rare": 100 * rarest.double().mean().item(),
            }
        )
    return Result.of({method.model.name: {"texts": len(texts)}}, "", {"texts": texts})


def reader(tokenizer: Tokenizer) -> Callable[[str], str]:
    """A function that joins tokens, separated by spaces, to text as people read it."""
    if tokenizer.kind == "sentencepiece":
        return lambda text: " ".join(text.replace(" ", "").replace("▁", " ").split())
    if tokenizer.kind != "gpt2":
        return str
    from tokenizers import ByteLevelBPETokenizer

    pieces = ByteLevelBPETokenizer.from_file(str(tokenizer.gpt2_encoder_json), str(tokenizer.gpt2_vocab_bpe))

    def read(text: str) -> str:
        runs = itertools.groupby(text.split(), key=str.isdecimal)  # special tokens, such as </s>, are no ids
        parts = (pieces.decode([*map(int, run)]) if ids else f" {' '.join(run)} " for ids, run in runs)
        return " ".join("".join(parts).split())

    return read


def sample_measures(key: str, label: str, evaluate: Callable[[Workspace, Method], Result], count: int) -> list[Measure]:
    """`uniq` or `very_rare` of each text of `samples`."""

    def value(number: int) -> Callable[[Result], Value]:
        return lambda result: result.details["texts"][number][key] if number < len(result.details["texts"]) else None

    numbered = [f"{label}, text {number + 1}" for number in range(count)] if count > 1 else [label]
    return [Measure(title, evaluate, value(number)) for number, title in enumerate(numbered)]
