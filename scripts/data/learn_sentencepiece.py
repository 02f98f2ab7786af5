"""Learns sub-words from a text by merging pairs (BPE), by sentencepiece.

    python -m scripts.data.learn_sentencepiece TEXT VOCABULARY MODEL [KEY=VALUE…]

KEY=VALUE is an option of sentencepiece's trainer, in place of ours.
"""

from __future__ import annotations

import sys


def learn(text: str, vocabulary: str, model: str, *options: str) -> None:
    """Writes a model with all characters of the text, none of which is replaced by another.

    WikiText's `<unk>` is learned like any other word: if sentencepiece's own unknown piece had this
    name, it would skip the word, and then know no `<` and `>`.
    """
    import sentencepiece

    given = {
        "character_coverage": 1.0,
        "normalization_rule_name": "identity",
        "max_sentence_length": 1 << 20,  # by default, it leaves out paragraphs above 4,192 bytes
    }
    for option in options:
        key, given[key] = option.split("=")
    with open(text, encoding="utf-8", newline="\n") as lines, open(model, "wb") as writer:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(" ".join(line.split()) for line in lines),
            model_writer=writer,
            model_type="bpe",
            vocab_size=int(vocabulary),
            unk_piece="<unknown>",
            minloglevel=2,
            **given,
        )


if __name__ == "__main__":
    learn(*sys.argv[1:])
