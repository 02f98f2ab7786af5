"""The `bleu` command, called in this process: against fairseq's scorer and sacrebleu's own, and every refusal."""

import json

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from fairseq.trainer import Trainer
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import corpus_bleu

from agg_fairseq import __version__
from agg_fairseq.cli.main import main
from agg_fairseq.metrics import split_compounds, tokenized_bleu
from tests.conftest import run_command
from tests.glue.test_text_metrics_command import cells
from tests.small_trainings import MT, build
from tests.unit.test_generate_log import sentence, write

REFERENCES = ["Ein Mann mit Hut .", "Text-zu-Text , sagte er .", "Ein Hund läuft über das Gras ."]
HYPOTHESES = ["Ein Mann mit einem Hut .", "Text-zu-Bild , sagte er .", "Der Hund läuft über das Gras ."]
PLAIN_REFERENCES = ["Ein Mann mit Hut.", "Text-zu-Text, sagte er.", "Ein Hund läuft über das Gras."]
PLAIN_HYPOTHESES = ["Ein Mann mit einem Hut.", "Text-zu-Bild, sagte er.", "Der Hund läuft über das Gras."]
NONE = "nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:"
SACREBLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"


TOKENS = [
    *("ja &apos; x", "ja &quot; x", "a &amp; b", "a &lt; b", "a &gt; b", "a &#124; b", "a &#91; b", "a &#93; b"),
    *("a . b", "a , b", "a @-@ b", ". x", "Was ist das ?", "Halt !", "a ; b", "Er sagt : ja", "( hier )", "x )", "( x"),
    *("it does n't go", "he does n't", "the dog 's tail", "that 's"),
]
"""Each a line that only tokenized text should have, of the kind that a single expression finds."""
FRENCH = ["Qui est là ?", "Oui : moi !", "Il dort ; elle lit.", *["Il est là, je crois."] * 7]
"""Typographic spaces in three of ten lines."""


def write_log(path, hypotheses=HYPOTHESES, references=REFERENCES, decode=str):
    pairs = enumerate(zip(references, hypotheses, strict=True))
    return write(path, [line for i, (r, h) in pairs for line in sentence(i, r, [(-1, h)], decode)])


def run(capsys, *arguments):
    assert main(["bleu", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main(["bleu", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a-b", "a ##AT##-##AT## b"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("aa-bb-cc", "aa ##AT##-##AT## bb ##AT##-##AT## cc"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("- a-", "- a-"),
        ("a -b", "a -b"),
        ("---", "- ##AT##-##AT## -"),
        ("----", "- ##AT##-##AT## --"),
        ("ä-ö", "ä ##AT##-##AT## ö"),
        ("x\u00a0-y", "x\u00a0 ##AT##-##AT## y"),
    ],
)
def test_compounds(line, expected):
    """Printed by perl 5.36: perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'."""
    assert split_compounds(line) == expected


def test_bleu_by_hand():
    """`x a-b` for `a-b`: 4 tokens for 3, no penalty; of 1- to 4-grams match 3/4, 2/3, 1/2 and 0/1: 0 without smoothing.

    `a b-c d` for `a b-c e`: 5 tokens; 4/5, 3/4, 2/3, 1/2: the product is 1/5.
    """
    assert tokenized_bleu(["x a-b"], ["a-b"]).score == 0
    found = tokenized_bleu(["a b-c d"], ["a b-c e"])
    assert found.score == pytest.approx(100 * (1 / 5) ** (1 / 4))
    assert (found.hypothesis_length, found.reference_length, found.brevity_penalty, found.ratio) == (5, 5, 1, 1)


def scored_by_fairseq(hypotheses, references):
    """What `fairseq-score` does with the two files that compound_split_bleu.sh makes."""
    dictionary = Dictionary()
    scorer = Scorer(BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    for lines in zip(hypotheses, references, strict=True):
        hypothesis, reference = (dictionary.encode_line(split_compounds(line)).int() for line in lines)
        scorer.add(reference, hypothesis)
    return scorer


@pytest.mark.parametrize(
    ("hypotheses", "references"), [(["", "a b"], ["a b", ""]), (["", "a"], ["", "a"]), ([""], ["a"]), ([""], [""])]
)
def test_empty_lines_against_fairseq(hypotheses, references):
    found, scorer = tokenized_bleu(hypotheses, references), scored_by_fairseq(hypotheses, references)
    assert found.score == scorer.score() == 0  # there are no 4-grams
    assert (found.hypothesis_length, found.reference_length) == (scorer.stat.predlen, scorer.stat.reflen)
    assert found.precisions[:1] == [100 * precision for precision in scorer.precision()[:1]]


LINES = st.lists(st.sampled_from(["a", "b", "a-b", "b-a-b", "-", "<<unk>>", "ä"]), max_size=9).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6))
def test_against_fairseq(pairs):
    hypotheses, references = zip(*pairs, strict=True)
    found, scorer = tokenized_bleu(hypotheses, references), scored_by_fairseq(hypotheses, references)
    assert found.score == pytest.approx(scorer.score(), rel=1e-9, abs=1e-9)
    assert (found.hypothesis_length, found.reference_length) == (scorer.stat.predlen, scorer.stat.reflen)
    assert found.brevity_penalty == pytest.approx(scorer.brevity())


def test_table(tmp_path, capsys):
    first = write_log(tmp_path / "mle.log")
    second = write_log(tmp_path / "agg.log", REFERENCES)
    printed = run(capsys, first, second)
    table = cells(printed)
    assert list(table) == ["mle", "agg"]
    assert list(table["mle"]) == [
        "BLEU", "BP", "ratio", "sacreBLEU", "sacreBLEU BP", "sacreBLEU ratio", "sentences",
    ]  # fmt: skip
    scorer = scored_by_fairseq(HYPOTHESES, REFERENCES)
    assert table["mle"]["BLEU"] == f"{scorer.score():.2f}" and table["mle"]["BP"] == f"{scorer.brevity():.3f}"
    assert table["agg"].items() >= {"BLEU": "100.00", "ratio": "1.000", "sacreBLEU": "—", "sentences": "3"}.items()
    signature = printed.splitlines()[-1]
    assert signature.startswith(f"sentences:3|bleu:compounds-split,[{NONE}") and "sacrebleu:" not in signature
    assert signature.endswith(f"|version:{__version__}")
    assert list(cells(run(capsys, first, second, "--name", "x", "y"))) == ["x", "y"]


@pytest.mark.parametrize("case", ["plain", "moses", "decoded"])
def test_sacrebleu(tmp_path, capsys, case):
    """The same whether the text was never tokenized, or is detokenized here or by fairseq-generate."""
    reference = write(tmp_path / "test.de", PLAIN_REFERENCES)
    escaped = [line.replace("-", " @-@ ") for line in HYPOTHESES]
    path, options = tmp_path / "a.log", ("--reference", reference, "--json", tmp_path / "a.json")
    if case == "plain":
        write_log(path, PLAIN_HYPOTHESES, PLAIN_REFERENCES)
    elif case == "moses":
        write_log(path, escaped)
        options += ("--moses", "de")
    else:
        write_log(path, escaped, PLAIN_REFERENCES, dict(zip(escaped, PLAIN_HYPOTHESES, strict=True)).get)
    printed = run(capsys, path, *options)
    row, expected = cells(printed)["a"], corpus_bleu(PLAIN_HYPOTHESES, [PLAIN_REFERENCES])
    assert (row["sacreBLEU"], row["sacreBLEU BP"]) == (f"{expected.score:.2f}", f"{expected.bp:.3f}")
    assert (row["BLEU"] == "—") == (case == "decoded")
    text = "sacremoses-" if case == "moses" else "as-generated,"
    assert f"|sacrebleu:{text}" in printed and f"[{SACREBLEU}" in printed
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["signature"] == printed.splitlines()[-1] and result["reference"] == str(reference)
    (found,) = result["files"]
    assert (found["name"], found["path"], found["sentences"]) == ("a", str(path), 3)
    assert found["sacrebleu"]["score"] == pytest.approx(expected.score, rel=1e-12)
    assert found["sacrebleu"]["precisions"] == pytest.approx(expected.precisions)
    assert found["sacrebleu"]["signature"].startswith(SACREBLEU)
    assert (found["bleu"] is None) == (case == "decoded")


def test_moses_text_is_unescaped(tmp_path, capsys):
    moses = [
        "Er sagt : &quot; Gut &amp; schlecht &quot; .",
        "Müllers &#91; 1 &#93; Haus &#124; Hof , 5 &lt; 6 .",
        "Sie sagt &apos; ja &apos; .",
    ]
    plain = ['Er sagt: "Gut & schlecht".', "Müllers [1] Haus | Hof, 5 < 6.", "Sie sagt 'ja'."]
    log, reference = write_log(tmp_path / "a.log", moses, moses), write(tmp_path / "test.de", plain)
    run(capsys, log, "--reference", reference, "--moses", "de", "--json", tmp_path / "a.json")
    (found,) = json.loads((tmp_path / "a.json").read_text())["files"]
    assert found["sacrebleu"]["score"] == pytest.approx(100)
    assert found["bleu"]["score"] == pytest.approx(100)


def test_best_of_several_hypotheses(tmp_path, capsys):
    lines = [line for i, text in enumerate(REFERENCES) for line in sentence(i, text, [(-2, "x"), (-1, text), (-3, "")])]
    assert cells(run(capsys, write(tmp_path / "a.log", lines)))["a"]["BLEU"] == "100.00"


@pytest.mark.parametrize(
    ("hypotheses", "references", "options", "words"),
    [
        (["Ei@@ n Hund", "x", "y"], None, (), "found sub-words, 'Ei@@ n Hund'; expected words; pass --remove-bpe"),
        (["x", "y", "Ein Hu@@"], None, (), "found sub-words"),
        (["▁Ein ▁Hu nd", "x", "y"], None, (), "--remove-bpe sentencepiece, to fairseq-generate"),
        (None, ["▁Ein ▁Hu nd", "x", "y"], (), "found sub-words"),
        (None, None, ("reference",), "found 'n Mann mit einem Hut .', tokenized text; expected plain text for"),
        (["sagt &quot; ja", "x", "y"], None, ("reference",), "pass --moses LANG if these are Moses tokens"),
        (["a , b", "x", "y"], None, ("reference",), "tokenized text"),
        (["a @-@ b", "x", "y"], None, ("reference",), "tokenized text"),
        (["Was ist das ?", "x", "y"], None, ("reference",), "found 'Was ist das ?', tokenized text"),
        *(([text, "x", "y"], None, ("reference",), "tokenized text") for text in TOKENS),
        (PLAIN_HYPOTHESES, None, ("reference", "--moses", "de"), "plain text; expected Moses tokens; leave out --m"),
        (None, None, ("--moses", "de"), "found no --reference"),
        (None, None, ("--moses", ""), "found no --reference"),
        (None, None, ("reference", "--moses", ""), "found ''; expected a language of sacremoses: as, bn, ca, cs, de,"),
        (None, None, ("reference", "--moses", "klingon"), "--moses: found 'klingon'; expected a language"),
        (None, None, ("reference", "--moses", "german"), "--moses: found 'german'; expected a language"),
        (None, None, ("--reference", "none.de"), "none.de: unreadable (FileNotFoundError"),
        (None, None, ("--name", "a", "b"), "2 names for 1"),
        (None, None, ("--json", "/dev/null/x.json"), "cannot write"),
    ],
)
def test_refusals(tmp_path, capsys, hypotheses, references, options, words):
    log = write_log(tmp_path / "a.log", hypotheses or HYPOTHESES, references or REFERENCES)
    if options[:1] == ("reference",):
        options = ("--reference", write(tmp_path / "test.de", PLAIN_REFERENCES), *options[1:])
    assert words in refused(capsys, log, *options)


def test_stray_signs_are_no_reason(tmp_path, capsys):
    """As plain text has them, in one line of a thousand of Multi30k."""
    lines = [f"Das ist Satz {index} von vielen." for index in range(40)] + ["Ein Keks ."]
    log, reference = write_log(tmp_path / "a.log", lines, lines), write(tmp_path / "test.de", lines)
    assert cells(run(capsys, log, "--reference", reference))["a"]["sacreBLEU"] == "100.00"


@pytest.mark.parametrize("text", [*TOKENS, "Hu@@ nd", "▁Hund"])
@pytest.mark.parametrize(("odd", "of"), [(1, 20), (2, 39)])
def test_share_of_lines(tmp_path, capsys, text, odd, of):
    """1 in 20 is not more than 5 %, 2 in 39 are; the others have no sign of either kind."""
    lines = [*[text] * odd, *["Ein Satz"] * (of - odd)]
    log, reference = write_log(tmp_path / "a.log", lines, lines), write(tmp_path / "test.de", ["Ein Satz"] * of)
    if odd == 1:
        assert run(capsys, log, "--reference", reference)
    else:
        assert "sub-words" in (error := refused(capsys, log, "--reference", reference)) or "tokenized" in error


@pytest.mark.parametrize("text", TOKENS)
def test_share_of_lines_of_the_reference(tmp_path, capsys, text):
    log = write_log(tmp_path / "a.log", ["Ein Satz"] * 39, ["Ein Satz"] * 39)
    for odd in (1, 2):
        reference = write(tmp_path / "test.de", [*[text] * odd, *["Ein Satz"] * (39 - odd)])
        if odd == 1:
            assert run(capsys, log, "--reference", reference)
        else:
            assert f"{reference}: found {text!r}, tokenized" in refused(capsys, log, "--reference", reference)


def test_plain_french(tmp_path, capsys):
    """Spaces before signs are no tokens where the others stand at their words."""
    log, reference = write_log(tmp_path / "a.log", FRENCH, FRENCH), write(tmp_path / "test.fr", FRENCH)
    assert cells(run(capsys, log, "--reference", reference))["a"]["sacreBLEU"] == "100.00"
    assert "leave out --moses" in refused(capsys, log, "--reference", reference, "--moses", "fr")


@pytest.mark.parametrize("language", ["de", "en"])
def test_plain_text_of_multi30k(shared_data, tmp_path, capsys, language):
    lines = (shared_data / "multi30k" / f"test.{language}").read_text(encoding="utf-8").splitlines()
    log, reference = write_log(tmp_path / "a.log", lines, lines), write(tmp_path / "reference", lines)
    assert cells(run(capsys, log, "--reference", reference))["a"]["sacreBLEU"] == "100.00"


def test_a_byte_order_mark_is_no_text(tmp_path, capsys):
    log, reference = write_log(tmp_path / "a.log", PLAIN_REFERENCES, PLAIN_REFERENCES), tmp_path / "test.de"
    reference.write_text("".join(f"{line}\n" for line in PLAIN_REFERENCES), encoding="utf-8-sig")
    assert cells(run(capsys, log, "--reference", reference))["a"]["sacreBLEU"] == "100.00"


@pytest.mark.parametrize("language", ["ja", "ko", "zh", "fr"])
def test_languages_of_sacremoses(tmp_path, capsys, language):
    log, reference = write_log(tmp_path / "a.log"), write(tmp_path / "reference", PLAIN_REFERENCES)
    assert f"-{language},[" in run(capsys, log, "--reference", reference, "--moses", language)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (PLAIN_REFERENCES[:2], "found 2 lines; expected 3, one per sentence of"),
        ([*PLAIN_REFERENCES[:2], " "], "found nothing on line 3"),
        (REFERENCES, "tokenized text; expected the plain text that sacreBLEU is defined on"),
    ],
)
def test_bad_references(tmp_path, capsys, lines, words):
    log = write_log(tmp_path / "a.log", PLAIN_HYPOTHESES, PLAIN_REFERENCES)
    assert words in refused(capsys, log, "--reference", write(tmp_path / "test.de", lines))


def test_detokenized_by_fairseq(tmp_path, capsys):
    """Then the log lacks the tokens of the references."""
    log = write_log(tmp_path / "a.log", decode=str.upper)
    assert "fairseq-generate has detokenized (D differs from H); expected --reference" in refused(capsys, log)


def test_logs_of_other_sentences(tmp_path, capsys):
    first = write_log(tmp_path / "a.log")
    shorter = write_log(tmp_path / "b.log", HYPOTHESES[:2], REFERENCES[:2])
    other = write_log(tmp_path / "c.log", HYPOTHESES, [*REFERENCES[:2], "x"])
    assert f"{shorter}: found 2 sentences; expected the 3 of {first}" in refused(capsys, first, shorter)
    assert f"{other}: found another reference T-2 than in {first}" in refused(capsys, first, other)


def test_a_file_is_not_written_over(tmp_path, capsys):
    log = write_log(tmp_path / "a.log")
    assert f"--json: found {log}, a file that is read" in refused(capsys, log, "--json", log)


@pytest.mark.slow
def test_what_fairseq_generate_prints(mt_data, capsys, tmp_path):
    """For a model that has learned nothing; with several hypotheses for a sentence."""
    trainer = Trainer(*build(mt_data, "--criterion", "cross_entropy", "-s", "en", "-t", "de", base=MT))
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(tmp_path / "checkpoint.pt"), {"train_iterator": {"epoch": 1}})
    options = ("--path", tmp_path / "checkpoint.pt", "--beam", "2", "--nbest", "2", "--max-len-b", "5", "--cpu")
    for multiple in ("1", "8"):
        result = run_command(
            "fairseq-generate", mt_data, "--user-dir", "agg_fairseq", "-s", "en", "-t", "de", *options,
            "--required-batch-size-multiple", multiple,
        )  # fmt: skip
        (tmp_path / f"{multiple}.log").write_text(result.stdout)
    reference, log = mt_data.parent / "test.de", tmp_path / "1.log"
    run(capsys, log, "--reference", reference, "--json", tmp_path / "a.json")
    (found,) = json.loads((tmp_path / "a.json").read_text())["files"]
    assert found["sentences"] == len(reference.read_text().splitlines()) == 12
    lengths = [found["bleu"][f"{side}_length"] for side in ("hypothesis", "reference")]
    said = next(line for line in log.read_text().splitlines() if line.startswith("Generate test with beam=2"))
    assert "syslen={}, reflen={}".format(*lengths) in said and f"BLEU4 = {found['bleu']['score']:.2f}," in said
    assert "--required-batch-size-multiple 1" in refused(capsys, tmp_path / "8.log", "--reference", reference)
