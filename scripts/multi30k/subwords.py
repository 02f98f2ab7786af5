"""Learns joint sub-words on the training text of two languages, and cuts all splits into them.

python scripts/multi30k/subwords.py DATA TEXT --vocabulary N
"""

import argparse
from pathlib import Path

import sentencepiece


def main() -> None:
    """Writes TEXT/{train,valid,test}.{en,de} and the model, TEXT/subwords.model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--vocabulary", type=int, required=True, help="sub-words of both languages together")
    arguments = parser.parse_args()
    prefix = arguments.text / "subwords"
    sentencepiece.SentencePieceTrainer.train(
        input=[str(arguments.data / f"train.{language}") for language in ("en", "de")],
        model_prefix=str(prefix),
        vocab_size=arguments.vocabulary,
        model_type="bpe",
        character_coverage=1.0,
        num_threads=1,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    for split in ("train", "valid", "test"):
        for language in ("en", "de"):
            lines = (arguments.data / f"{split}.{language}").read_text(encoding="utf-8").rstrip("\n").split("\n")
            pieces = (" ".join(words) for words in processor.encode(lines, out_type=str))
            (arguments.text / f"{split}.{language}").write_text("\n".join(pieces) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
