"""Scores translations, read from what `fairseq-generate` printed, next to each other.

`BLEU` is the tokenised one of Vaswani et al. (2017), as fairseq's compound_split_bleu.sh computes it: compounds are
split at their hyphens in the hypotheses (H) and the references (T) of the log, whose tokens are then compared as they
are. It can be compared only among models whose text was tokenised alike. `sacreBLEU`, the one to report, is that of
plain text (D) against --reference, the untokenised target side of the split, a sentence per line. Beside each are its
brevity penalty (BP) and the ratio of the lengths of hypotheses and references.

fairseq-generate must have removed the sub-words (--remove-bpe, --remove-bpe sentencepiece). If what is left are Moses
tokens, as in the usual WMT data, --moses makes plain text of them: it joins them and turns `&quot;` and the like back
into characters. Of text that was never tokenised, as that of a sentencepiece model, leave it out. Text that looks as
if it needed the other is refused. Of several hypotheses for a sentence (--nbest), that of the best score counts.

    fairseq-generate data-bin/wmt14 --path checkpoint.pt --remove-bpe --required-batch-size-multiple 1 … > mle.log
    agg-fairseq bleu mle.log agg.log --reference newstest2014.de --moses de
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..errors import UserError, first_line
from ..files import open_file
from .generate_log import Translations, read_translations
from .measured import Measured, measure_and_show
from .naming import names_of, stem
from .table import number

COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)  # ASCII: what is a space to fairseq's Perl script
SUBWORD = re.compile(r"@@(?: |$)|▁")
TOKENISED = re.compile(r"(?:^| )[.,](?: |$)| @-@ |&(?:apos|quot|amp|lt|gt|#124|#91|#93);")
SPACED = re.compile(rf"{TOKENISED.pattern}| [?!;:)](?: |$)|(?:^| )\( | (?:n't|'s)(?: |$)")
"""Also what plain text has at times, such as French (`Quoi ?`) and Dutch (`'s avonds`)."""
PLAIN = re.compile(r"\w,(?: |$)|\w\.$")
UNLISTED = ("ja", "ko")
"""Languages that sacremoses knows by their script, without the abbreviations that it has of the others."""
LOOKS_SHARE = 0.05
"""Text is taken for what it looks like in more than this share of its lines: plain text has a stray ` ,` too."""


@dataclass(frozen=True)
class Bleu:
    """A score, from 0 to 100, and what it is made of: lists are by order 1 to 4."""

    score: float
    precisions: list[float]
    brevity_penalty: float
    ratio: float
    hypothesis_length: int
    reference_length: int
    signature: str
    """That of sacrebleu."""


@dataclass(frozen=True)
class Scores:
    """The numbers of one log; None where they need what is not there."""

    path: str
    sentences: int
    bleu: Bleu | None
    sacrebleu: Bleu | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="outputs of fairseq-generate, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per log (default: its own, without ending)")
    parser.add_argument("--reference", metavar="FILE", help="the split's target side, untokenised, for sacreBLEU")
    parser.add_argument("--moses", metavar="LANG", help="detokenise what are Moses tokens of the language, such as de")
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Scores every log, prints the table and writes the JSON file."""
    references = [arguments.reference] if arguments.reference else []
    measure_and_show(measure, arguments, [*arguments.logs, *references])


def measure(arguments: argparse.Namespace) -> Measured:
    """Scores every log."""
    names = names_of(arguments.logs, arguments.name, stem)
    if arguments.moses is not None:
        _check_moses(arguments.moses, arguments.reference)
    logs = [read_translations(path) for path in arguments.logs]
    _check_same_split(logs)
    references = None if arguments.reference is None else _read_reference(arguments.reference, logs[0])
    progress = tqdm(logs, desc="scoring", unit="log", disable=None, leave=False)
    scores = [_score(log, references, arguments.moses) for log in progress]
    return Measured(
        header=["", "BLEU", "BP", "ratio", "sacreBLEU", "sacreBLEU BP", "sacreBLEU ratio", "sentences"],
        rows=[[name, *_cells(of_log)] for name, of_log in zip(names, scores, strict=True)],
        signature=_signature(scores, arguments.moses),
        values={
            "reference": arguments.reference,
            "files": [{"name": name, **asdict(of_log)} for name, of_log in zip(names, scores, strict=True)],
        },
    )


def split_compounds(line: str) -> str:
    """Makes tokens of the parts of a compound: `Text-zu-Text` to `Text ##AT##-##AT## zu ##AT##-##AT## Text`.

    As fairseq does it, from left to right and not overlapping: of `a-b-c`, only the first hyphen is split.
    """
    return COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """BLEU of lines of tokens, separated by spaces, with compounds split.

    As fairseq-score, an empty line counts as one token, its end.
    """
    split = [[split_compounds(line) or "</s>" for line in lines] for lines in (hypotheses, references)]
    return _bleu(*split, tokenize="none", smooth_method="none")


def _check_moses(language: str, reference: str | None) -> None:
    if reference is None:
        raise UserError("--moses: found no --reference; expected one, since only sacreBLEU needs plain text")
    supported = {*_sacremoses().corpus.NonbreakingPrefixes().available_langs.values(), *UNLISTED}
    if language not in supported:
        raise UserError(
            f"--moses: found {language!r}; expected a language of sacremoses: {', '.join(sorted(supported))}"
        )


def _bleu(hypotheses: Sequence[str], references: Sequence[str], **options: str) -> Bleu:
    """What sacrebleu finds. `force` only keeps it from warning: what it would warn of is refused here."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise UserError("bleu: sacrebleu is missing; pip install 'agg-fairseq[eval]'") from error
    metric = BLEU(force=True, **options)
    found = metric.corpus_score(hypotheses, [references])
    return Bleu(
        score=found.score,
        precisions=found.precisions,
        brevity_penalty=found.bp,
        ratio=found.ratio,
        hypothesis_length=found.sys_len,
        reference_length=found.ref_len,
        signature=str(metric.get_signature()),
    )


def _check_same_split(logs: Sequence[Translations]) -> None:
    """Scores stand side by side only if they are of the same sentences, and BLEU only if of the same tokens."""
    first = logs[0]
    for log in logs[1:]:
        if len(log.references) != len(first.references):
            raise UserError(
                f"{log.path}: found {len(log.references)} sentences; expected the {len(first.references)} of "
                f"{first.path}; translate the same split"
            )
        pairs = enumerate(zip(log.references, first.references, strict=True))
        differing = next((index for index, (one, other) in pairs if one != other), None)
        if differing is not None:
            raise UserError(
                f"{log.path}: found another reference T-{differing} than in {first.path}; expected the same split, "
                "tokenised alike; score the two by themselves"
            )


def _read_reference(path: str, log: Translations) -> list[str]:
    """The lines of a plain text, as many as the log has sentences."""
    try:
        with open_file(path, encoding="utf-8-sig", newline="\n") as file:  # sig: a mark before the text is not of it
            lines = [line.rstrip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected a sentence per line") from error
    if len(lines) != len(log.references):
        raise UserError(
            f"{path}: found {len(lines)} lines; expected {len(log.references)}, one per sentence of {log.path}, unless "
            "fairseq-generate dropped some: give it --required-batch-size-multiple 1"
        )
    if "" in lines:
        raise UserError(f"{path}: found nothing on line {lines.index('') + 1}; expected a sentence on each")
    tokenised = _tokenised(lines)
    if tokenised is not None:
        raise UserError(
            f"{path}: found {tokenised}, tokenised text; expected the plain text that sacreBLEU is "
            "defined on, as it was before the data were tokenised"
        )
    return lines


def _score(log: Translations, references: list[str] | None, language: str | None) -> Scores:
    """Both scores, each where it is defined."""
    if log.decoded and references is None:
        raise UserError(
            f"{log.path}: found text that fairseq-generate has detokenised (D differs from H); expected --reference "
            "for sacreBLEU, or, for tokenised BLEU, a log without --tokenizer and --bpe"
        )
    checked = [log.texts] if log.decoded else [log.texts, log.references]
    for lines in checked:
        if _share(SUBWORD, lines) > LOOKS_SHARE:
            raise UserError(
                f"{log.path}: found sub-words, {_example(SUBWORD, lines)}; expected words; pass --remove-bpe, or "
                "--remove-bpe sentencepiece, to fairseq-generate"
            )
    bleu = None if log.decoded else tokenised_bleu(log.tokens, log.references)
    sacrebleu = None if references is None else _bleu(_plain(log, language), references)
    return Scores(path=log.path, sentences=len(log.references), bleu=bleu, sacrebleu=sacrebleu)


def _plain(log: Translations, language: str | None) -> list[str]:
    """The hypotheses as sacreBLEU is defined on them: detokenised, once."""
    if language is None:
        tokenised = _tokenised(log.texts)
        if tokenised is not None:
            raise UserError(
                f"{log.path}: found {tokenised}, tokenised text; expected plain text for "
                "sacreBLEU; pass --moses LANG if these are Moses tokens"
            )
        return log.texts
    if _share(PLAIN, log.texts) > _share(SPACED, log.texts):
        raise UserError(
            f"{log.path}: found {_example(PLAIN, log.texts)}, plain text; expected Moses tokens; leave out --moses"
        )
    return _detokenise(log.texts, language)


def _detokenise(lines: Sequence[str], language: str) -> list[str]:
    detokenizer = _sacremoses().MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split()) for line in lines]


def _sacremoses() -> Any:
    try:
        import sacremoses.corpus
    except ImportError as error:
        raise UserError("--moses: sacremoses is missing; pip install 'agg-fairseq[eval]'") from error
    return sacremoses


def _tokenised(lines: Sequence[str]) -> str | None:
    """Where text looks tokenised, if it does: by what plain text does not have, or by what it seldom has."""
    if _share(TOKENISED, lines) > LOOKS_SHARE:
        return _example(TOKENISED, lines)
    return _example(SPACED, lines) if _share(SPACED, lines) > max(LOOKS_SHARE, _share(PLAIN, lines)) else None


def _share(looks: re.Pattern[str], lines: Sequence[str]) -> float:
    """The share of lines that look so."""
    return sum(looks.search(line) is not None for line in lines) / len(lines)


def _example(looks: re.Pattern[str], lines: Sequence[str]) -> str:
    """The first line that looks so, around the place."""
    match = next(filter(None, map(looks.search, lines)))
    return repr(match.string[max(0, match.start() - 20) : match.end() + 10])


def _cells(scores: Scores) -> list[str | None]:
    cells: list[str | None] = []
    for found in (scores.bleu, scores.sacrebleu):
        of_score = (found.score, found.brevity_penalty, found.ratio) if found else (None, None, None)
        cells += [number(value, digits) for value, digits in zip(of_score, (2, 3, 3), strict=True)]
    return [*cells, number(scores.sentences, 0)]


def _signature(scores: Sequence[Scores], language: str | None) -> str:
    """Every choice that moves a number, sacrebleu's own signatures in brackets."""
    bleu = next((of_log.bleu for of_log in scores if of_log.bleu), None)
    sacrebleu = next((of_log.sacrebleu for of_log in scores if of_log.sacrebleu), None)
    parts = [f"sentences:{scores[0].sentences}"]
    if bleu:
        parts.append(f"bleu:compounds-split,[{bleu.signature}]")
    if sacrebleu:
        text = "as-generated" if language is None else f"sacremoses-{metadata.version('sacremoses')}-{language}"
        parts.append(f"sacrebleu:{text},[{sacrebleu.signature}]")
    return "|".join([*parts, f"version:{__version__}"])
