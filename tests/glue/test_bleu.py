"""The `bleu` command, against fairseq's scorer and sacrebleu's own."""

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import corpus_bleu

from agg_fairseq.metrics import split_compounds, tokenized_bleu
from tests.commands import cells, read_result, refused, run
from tests.conftest import call, read_lines, write_lines
from tests.generate_logs import sentence

PLAIN_REFERENCES = ["Ein Mann mit Hut.", "Text-zu-Text, sagte er.", "Ein Hund läuft über das Gras."]
PLAIN_HYPOTHESES = [
    "Ein Mann mit einem Hut.", "Text-zu-Bild, sagte er.", "Der Hund läuft über das Gras.",
]  # fmt: skip
REFERENCES, HYPOTHESES = (
    [line.replace(".", " .").replace(",", " ,") for line in lines]
    for lines in (PLAIN_REFERENCES, PLAIN_HYPOTHESES)
)
SACREBLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"


def write_log(path, hypotheses=HYPOTHESES, references=REFERENCES, decode=str, language="de"):
    lines = [f"2026 | INFO | … | data-bin test x-{language} {len(references)} examples"]
    lines = lines if language else []
    for number, (reference, text) in enumerate(zip(references, hypotheses, strict=True)):
        lines += sentence(number, reference, [(-1, text)], decode)
    return write_lines(path, lines)


def test_split_compounds_as_perl():
    """Printed by perl 5.36: perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'."""
    for line, expected in (
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("a -b", "a -b"),
        ("x\u00a0-y", "x\u00a0 ##AT##-##AT## y"),
    ):
        assert split_compounds(line) == expected


LINES = st.lists(st.sampled_from(["a", "b", "a-b", "b-a-b", "-", "<<unk>>", "ä"]), max_size=9).map(
    " ".join
)


@settings(max_examples=100)
@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6))
def test_against_fairseq(pairs):
    """What `fairseq-score` does with the two files that compound_split_bleu.sh makes."""
    dictionary = Dictionary()
    scorer = Scorer(BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    hypotheses, references = zip(*pairs, strict=True)
    for lines in zip(references, hypotheses, strict=True):
        scorer.add(*(dictionary.encode_line(split_compounds(line)).int() for line in lines))
    found = tokenized_bleu(hypotheses, references)
    assert found.score == pytest.approx(scorer.score(), rel=1e-9, abs=1e-9)
    lengths = (found.hypothesis_length, found.reference_length)
    assert lengths == (scorer.stat.predlen, scorer.stat.reflen)
    assert found.brevity_penalty == pytest.approx(scorer.brevity())


def test_bleu_of_two_logs(tmp_path):
    first, second = write_log(tmp_path / "mle.log"), write_log(tmp_path / "agg.log", REFERENCES)
    printed = run("bleu", first, second)
    table, score = cells(printed), tokenized_bleu(HYPOTHESES, REFERENCES)
    assert list(table) == ["mle", "agg"]
    expected = {"BLEU": f"{score.score:.2f}", "BP": f"{score.brevity_penalty:.3f}"}
    assert table["mle"].items() >= expected.items()
    expected = {"BLEU": "100.00", "ratio": "1.000", "sacreBLEU": "—", "sentences": "3"}
    assert table["agg"].items() >= expected.items()
    signature = "sentences:3|bleu:compounds-split,[nrefs:1|case:mixed|eff:no|tok:none|smooth:none|"
    assert printed.splitlines()[-1].startswith(signature) and "sacrebleu:" not in printed
    # compounds are split in German alone
    whole = tokenized_bleu(HYPOTHESES, REFERENCES, split=False)
    printed = run("bleu", write_log(tmp_path / "en.log", language="en"))
    assert cells(printed)["en"]["BLEU"] == f"{whole.score:.2f}" != table["mle"]["BLEU"]
    assert "|bleu:[nrefs:1|" in printed
    # one line of 20 may have the mark of sub-words
    marked = write_log(tmp_path / "20.log", ["a@@ b", *["c"] * 19], ["c"] * 20)
    assert cells(run("bleu", marked))["20"]["sentences"] == "20"


ESCAPED = [line.replace("-", " @-@ ") for line in HYPOTHESES]


@pytest.mark.parametrize(
    ("hypotheses", "references", "decode", "options"),
    [
        (PLAIN_HYPOTHESES, PLAIN_REFERENCES, str, ""),
        (ESCAPED, REFERENCES, str, "--moses de"),
        (ESCAPED, PLAIN_REFERENCES, dict(zip(ESCAPED, PLAIN_HYPOTHESES, strict=True)).get, ""),
    ],
    ids=["never tokenized", "detokenized here", "detokenized by fairseq-generate"],
)
def test_sacrebleu(tmp_path, hypotheses, references, decode, options):
    reference, target = tmp_path / "test.de", tmp_path / "a.json"
    write_lines(reference, ["\ufeff" + PLAIN_REFERENCES[0], *PLAIN_REFERENCES[1:]])
    log = write_log(tmp_path / "a.log", hypotheses, references, decode)
    printed = run("bleu", log, "--reference", reference, "--json", target, options)
    row, expected = cells(printed)["a"], corpus_bleu(PLAIN_HYPOTHESES, [PLAIN_REFERENCES])
    assert row["sacreBLEU"] == f"{expected.score:.2f}"
    assert (row["BLEU"] == "—") == (not options), "of tokens"
    text = "sacremoses-" if options else "as-generated,"
    assert f"|sacrebleu:{text}" in printed and f"[{SACREBLEU}" in printed
    assert read_result(target)["a"]["sacrebleu_signature"].startswith(SACREBLEU)


def test_bleu_refuses_logs_and_references(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "a.log")
    write_log(tmp_path / "other.log", HYPOTHESES, [*REFERENCES[:2], "x"])
    write_log(tmp_path / "decoded.log", decode=str.upper)  # lacks the tokens of the references
    write_log(tmp_path / "bpe.log", ["Ei@@ n Hund", "x", "y"])
    write_log(tmp_path / "short.log", HYPOTHESES[:2], REFERENCES[:2])
    write_log(tmp_path / "stdout.log", language=None)
    write_log(tmp_path / "scored.log", ["<unk>", "x"], ["<<unk>>", "x"])
    write_log(tmp_path / "plain.log", PLAIN_HYPOTHESES, PLAIN_REFERENCES)
    write_lines(tmp_path / "long", PLAIN_REFERENCES)
    write_lines(tmp_path / "english", ["A man with a hat.", "Text to text.", "A dog runs."])
    for arguments, words in (
        ("bpe.log", "found sub-words, 'Ei@@ n Hund'"),
        ("short.log --reference long", "found 3 lines; expected 2, as in short.log, which lacks"),
        ("a.log other.log", "other.log: found other T-… lines than in a.log"),
        ("decoded.log", "found text that is detokenized (D differs from H)"),
        ("plain.log", "never was tokenized, 'Ein Mann mit Hut.'; expected --reference"),
        ("stdout.log", "found no line that names the target language"),
        ("scored.log", "found the T-… lines in the H-… lines"),
        ("a.log --moses de --reference english", "with the T-… lines of a.log"),
    ):
        assert words in refused("bleu", *arguments.split())


def test_what_fairseq_generate_prints(mt_data, translator, tmp_path):
    options = "--beam 2 --nbest 2 --max-len-b 5 --cpu --required-batch-size-multiple"
    for multiple in ("1", "8"):
        given = ("--path", translator, f"{options} {multiple}")
        status, printed, logged, _ = call("generate", mt_data, *given)
        assert not status
        (tmp_path / f"{multiple}.log").write_text(printed)
    reference, log = mt_data.parent / "test.de", tmp_path / "1.log"
    assert "|bleu:[" in run("bleu", log), "stdout alone does not say the language"
    log.write_text(log.read_text() + logged)
    printed = run("bleu", log, "--reference", reference, "--json", tmp_path / "a.json")
    assert "|bleu:compounds-split,[" in printed
    found = read_result(tmp_path / "a.json")["1"]
    assert found["sentences"] == len(read_lines(reference)) == 12
    said = next(line for line in read_lines(log) if line.startswith("Generate test with beam=2"))
    lengths = f"syslen={found['bleu_hypothesis_length']}, reflen={found['bleu_reference_length']}"
    assert lengths in said and f"BLEU4 = {found['bleu']:.2f}," in said
    error = refused("bleu", tmp_path / "8.log", "--reference", reference)
    assert "--required-batch-size-multiple 1" in error
