"""`agg-fairseq report` of real runs: every section, and what is left out."""

import re
import shlex
import shutil

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.fairseq_plugin.training_command import training_command
from agg_fairseq.report import compared, models_of_runs, verdict, write_report
from agg_fairseq.result import BETTER, Result
from tests.commands import run, save_model
from tests.conftest import USER_DIR, write_lines
from tests.generate_logs import sentence


def test_every_section_of_the_report(lm_runs, lm_data, tmp_path):
    """Of two runs, and of what word-similarity says of them."""
    pairs, results, page = (tmp_path / name for name in ("PAIRS.txt", "words.json", "report.html"))
    pairs.write_text("w0\tw1\t3\nw2\tw3\t1\nw0\tw4\t2\nw1\tw9\t5\n")
    given = (lm_runs / "mle", lm_runs / "agg", "--data", lm_data)
    run("word-similarity", *given, "--datasets", pairs, "--json", results)
    run("report", *given, "--split train --max-texts 3 --results", results, "--output", page)
    html = page.read_text()
    sections = "Runs and settings|Learning curves|Perplexity and predictions|Generated texts"
    sections += "|Embeddings|Other results|Glossary"
    assert re.findall(r"<h2>(.*)</h2>", html) == sections.split("|")
    for words in ("▲ is better than mle", "--agg-rare-fraction", "I(W) ±", "PAIRS", "MSJ-2"):
        assert words in html, words
    assert "the first 30%, the next 50% and the last 20% of the tokens that occur" in html
    assert html.count("<img ") == 4 and "<script" not in html
    first = html[html.index("<h1>") : html.index("<nav>")]
    assert re.search(r"PPL total: mle [\d.,]+; agg [\d.,]+ \([+−][\d.]+%, not tested\)\.", first)
    assert re.search(r"hours:minutes:seconds.*?<td>0:0\d:\d\d", html) and "calibrated PPL" in first
    assert html.count("<code>fairseq-train ") == 2
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)
    assert set(re.findall(r'href="#([^"]*)"', html)) <= set(re.findall(r'id="([^"]*)"', html))
    row = re.search(r">PPL rare</a>.*?</tr>", html, re.DOTALL)[0]
    mle, agg = re.findall(r'<td class="[^"]*">([\d.,]+)', row)
    change = float(agg.replace(",", "")) / float(mle.replace(",", "")) - 1
    assert f"{change:+.1%}".replace("-", "−") in row
    section = html[html.index("<h2>Perplexity") : html.index("<h2>Generated")]
    assert "IsoScore" not in section, "which another section has"
    assert "none is tested" in html and not re.search('class="(?:better|worse)', html)


def test_marks_of_several_seeds():
    """Of the perplexity within groups and in total, but not of a group, which a shift changes."""
    rows = {}
    for name, factor in (("a1", 1.0), ("a2", 1.1), ("b1", 0.5), ("b2", 0.55)):
        values = {"rare": 9 * factor, "total": 3 * factor}
        rows[name] = {"perplexity": values, "within_perplexity": {"rare": 5 * factor}}
        rows[name]["unique_tokens"] = round(200 * factor)
    columns = {
        "perplexity": ["rare", "total"],
        "within_perplexity": ["rare"],
        "unique_tokens": [""],
    }
    models = {"a": {"1": "a1", "2": "a2"}, "b": {"1": "b1", "2": "b2"}}
    tables = compared(Result(rows, columns, {}), models, "a")[:-1]
    cells = {row[0][0]: row[-1] for table in tables for row in table.rows}
    verdicts = {title: cell.verdict for title, cell in cells.items()}
    marked = {"PPL total": BETTER, "PPL within rare": BETTER}
    assert verdicts == {"PPL rare": "", "Uniq": "", **marked}
    assert cells["Uniq"].text == "105 ± 7" and cells["Uniq"].change.startswith("-50.0%")
    said = "PPL total: a 3.15 ± 0.21; b 1.58 ± 0.11 (−50.0% ± 0.0, better)."
    assert verdict({"": tables}, models)[0] == said


def test_an_error_in_a_section_does_not_cost_the_others(lm_runs, lm_data, tmp_path):
    """Asks for a split that is not there, with a name that is never taken for HTML."""
    name = '<b>alert("1")</b>'
    errors = write_report({name: lm_runs / "agg"}, lm_data, tmp_path / "r.html", split="dev")
    html = (tmp_path / "r.html").read_text()
    said = html.count("found no split &#39;dev&#39;")
    assert len(errors) == said == html.count("error: ") == 2
    assert "<b>" not in html and "&lt;b&gt;alert" in html and html.count("<img ") == 3


def test_runs_of_other_seeds_are_one_model():
    def run(seed, **options):
        checkpoint = Checkpoint.__new__(Checkpoint)  # of which only the configuration is known
        criterion = {"_name": "agg", **options}
        checkpoint.state = {"cfg": {"common": {"seed": seed}, "criterion": criterion}}
        return checkpoint

    runs = {"mle-1": run(1), "agg-1": run(1, a=2), "mle-2": run(2), "agg-2": run(2, a=2)}
    runs["again"] = run(1)
    assert models_of_runs(runs) == {
        "mle-1 (2 seeds)": {"1": "mle-1", "2": "mle-2"},
        "agg-1 (2 seeds)": {"1": "agg-1", "2": "agg-2"},
        "again": {"1": "again"},
    }


def test_translation_runs(translator, mt_data, tmp_path):
    shutil.copy(translator, tmp_path / "checkpoint_last.pt")
    lines = [*sentence(0, "a b c d e", [(-1, "a b c d e")]), *sentence(1, "f g", [(-1, "f g h")])]
    for has_log in (False, True):
        run("report", tmp_path, "--data", mt_data, "-o", tmp_path / "r.html")
        html = (tmp_path / "r.html").read_text()
        assert "IsoScore" in html and "No run has a log" in html
        assert "Perplexity and predictions" not in html
        assert ("No run has translations" in html) != has_log
        assert ('class="verdict">BLEU: ' in html) == has_log
        write_lines(tmp_path / "generate.log", lines)


def test_the_command_of_a_training_gives_its_settings(lm_runs, lm_data, tmp_path):
    """Read again by fairseq, in all sections that a training has."""
    schedule = "--lr-scheduler polynomial_decay --total-num-update 9"
    scheduled = save_model(tmp_path / "c.pt", lm_data, schedule)
    sections = (
        "optimization",
        "criterion",
        "optimizer",
        "task",
        "model",
        "dataset",
        "lr_scheduler",
    )
    for checkpoint in map(Checkpoint, (lm_runs / "agg", scheduled)):
        command = training_command(checkpoint)
        words = shlex.split(command.replace('"$(agg-fairseq user-dir)"', str(USER_DIR)))
        arguments = options.parse_args_and_arch(options.get_training_parser(), words[1:])
        cfg = convert_namespace_to_omegaconf(arguments)
        for section in sections:
            for key, value in checkpoint.options(section).items():
                assert key == "data" or str(cfg[section][key]) == str(value), (section, key)
    assert " --total-num-update 9" in command
