"""Learns sub-words from a text by merging pairs (BPE), by sentencepiece.

    python -m scripts.data.learn_sentencepiece TEXT VOCABULARY MODEL [KEY=VALUE…]

KEY=VALUE is an option of sentencepiece's trainer, in place of ours.
"""

from __future__ import annotations

import sys

from agg_fairseq.errors import UserError

from ..command import run


def learn(text: str, vocabulary: str, model: str, *options: str) -> None:
    """Writes a model with all characters of the text, none of which is replaced by another.

    WikiText's `<unk>` is learned like any other word: if sentencepiece's own unknown piece had this
    name, it would skip the word, and then know no `<` and `>`.
    """
    import sentencepiece

    given = {"character_coverage": 1.0, "normalization_rule_name": "identity"}
    # its greatest; by default, it leaves out lines above 4,192 bytes
    given["max_sentence_length"] = 1 << 30
    for option in options:
        key, given[key] = option.split("=")
    with open(text, encoding="utf-8", newline="\n") as lines, open(model, "wb") as writer:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(" ".join(line.split()) for line in lines),
                model_writer=writer,
                model_type="bpe",
                vocab_size=int(vocabulary),
                unk_piece="<unknown>",
                minloglevel=2,
                **given,
            )
        except RuntimeError as error:  # after the condition that is not met, in brackets
            said = str(error).rpartition("] ")[2] or "the text is empty"
            raise UserError(f"--vocabulary {vocabulary}: sentencepiece says: {said}") from error


if __name__ == "__main__":
    sys.exit(run("prepare", lambda: learn(*sys.argv[1:])))
