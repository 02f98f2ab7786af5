"""Logs as fairseq-generate prints them."""


def sentence(index, reference="r", hypotheses=((-0.5, "h"),), decode=str):
    """What is printed for a sentence, by `_main` of fairseq_cli/generate.py."""
    lines = [f"S-{index}\ts", f"T-{index}\t{reference}"]
    for score, text in hypotheses:
        lines += [
            f"H-{index}\t{score}\t{text}",
            f"D-{index}\t{score}\t{decode(text)}",
            f"P-{index}\t-0.1 -0.2",
        ]
    return lines
