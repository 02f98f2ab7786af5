"""Prints the texts that models continued, side by side, as people read them, with what the papers
count in each.

    python scripts/texts.py PREPARED RUNS/MODEL/texts.jsonl …

Uniq is the number of different tokens of a continuation up to its first `</s>`, that one included
(Yu et al. 2022, Tables 5 and 15). VR is the number of very rare tokens, which together make up 10%
of the training text, as a percentage of the number of words (Choi et al. 2020, Table 4 and the
appendix, whose printed texts have such numbers of words).
"""

import json
import sys
import textwrap
from itertools import groupby
from pathlib import Path

from agg_fairseq.data.binarized import count_split, excluded_tokens, load_dictionary
from agg_fairseq.metrics import frequency_mass_groups

EOS = "</s>"


def readable(text: str, prepared: Path) -> str:
    """A text of tokens, separated by spaces, without marks of sub-words."""
    kind = json.loads((prepared / "manifest.json").read_text())["bpe"]["kind"]
    if kind == "sentencepiece":
        return " ".join(text.replace(" ", "").replace("▁", " ").split())
    if kind != "gpt2":
        return text
    from tokenizers import ByteLevelBPETokenizer

    pieces = ByteLevelBPETokenizer.from_file(
        f"{prepared}/tokenizer/encoder.json", f"{prepared}/tokenizer/vocab.bpe"
    )
    decoded = ""
    for are_ids, run in groupby(text.split(), key=str.isdecimal):  # </s> and the like are none
        tokens = [*run]
        decoded += pieces.decode([*map(int, tokens)]) if are_ids else f" {' '.join(tokens)} "
    return " ".join(decoded.split())


def unique_tokens(tokens: list[str]) -> int:
    """The number of different tokens up to the first `</s>`, that one included."""
    return len(set(tokens[: (tokens + [EOS]).index(EOS) + 1]))


def main(prepared: Path, files: list[Path]) -> None:
    """Prints the texts; the name of a model is that of the folder of its file."""
    dictionary = load_dictionary(prepared / "data-bin")
    counts = count_split(prepared / "data-bin", dictionary)
    groups = frequency_mass_groups(counts, excluded=excluded_tokens(dictionary))  # as text-metrics
    very_rare = set(groups.members("very rare").tolist())
    texts = [list(map(json.loads, file.open(encoding="utf-8"))) for file in files]
    for number, records in enumerate(zip(*texts, strict=True), 1):
        print(f"Text {number}: {readable(records[0]['prefix'], prepared)}")
        for file, text in zip(files, records, strict=True):
            tokens = text["continuation"].split()
            rare = sum(dictionary.index(token) in very_rare for token in tokens)
            words = readable(" ".join(token for token in tokens if token != EOS), prepared).split()
            facts = f"Uniq {unique_tokens(tokens)}, VR {rare / max(1, len(words)):.1%}"
            said = f"{file.parent.name} ({facts}): {readable(text['continuation'], prepared)}"
            print(textwrap.fill(said, 120, initial_indent="  ", subsequent_indent="    "))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
