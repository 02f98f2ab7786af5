"""Shared by all tests: seeds, texts, small binarized data, and calls of commands."""

import contextlib
import functools
import importlib
import io
import json
import logging
import os
import pydoc_data.topics
import random
import re
import subprocess
import sys
import uuid
from pathlib import Path

import hypothesis
import pytest
import torch

from scripts.data.python_documentation import paragraphs
from tests.forking import ENTRY_POINTS, run_forked

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
USER_DIR = ROOT / "agg_fairseq" / "fairseq_plugin" / "user_dir" / "agg_plugin"

hypothesis.settings.register_profile("tests", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tests")  # what is not a fuzzer draws the same numbers at each run


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Draws a seed of the fuzzers, unless one is given; the workers of pytest-xdist get it with the
    options."""
    config.option.hypothesis_seed = config.option.hypothesis_seed or str(
        random.SystemRandom().randrange(2**32)
    )


def pytest_sessionstart(session):
    """Prints the seed, also with -q, where pytest prints no header."""
    if (terminal := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
        seed = session.config.option.hypothesis_seed
        terminal.write_line(f"to draw the same damaged files again: --hypothesis-seed {seed}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks the cases of a test with the mark `grid(n)` as slow, but for n of them, evenly
    spread."""
    grids = {}
    for item in items:
        if (mark := item.get_closest_marker("grid")) is not None:
            if item.get_closest_marker("slow") is not None:
                raise pytest.UsageError(
                    f"{item.nodeid}: found grid and slow; expected one, since grid marks as slow"
                )
            grids.setdefault((item.path, item.originalname), (mark.args[0], []))[1].append(item)
    for quick, cases in grids.values():
        quick_cases = {(2 * part + 1) * len(cases) // (2 * quick) for part in range(quick)}
        for number, case in enumerate(cases):
            if number not in quick_cases:
                case.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _reset_state():
    random.seed(0)
    torch.manual_seed(0)
    yield
    logging.disable(logging.NOTSET)  # which scripts.train turns off in its process


@pytest.fixture(scope="session")
def shared_data():
    """The folder of published texts, for tests of these very texts; AGG_DATA names it."""
    folder = Path(os.environ.get("AGG_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"found no published texts at {folder}; set AGG_DATA")
    return folder


def run_command(*arguments, check=True, cwd=ROOT, env=None):
    """A command of the environment that runs the tests, or one given by its path; see `forking.py`
    for fairseq's."""
    command = [str(argument) for argument in arguments]
    options = {"cwd": cwd, "env": {**os.environ, **(env or {})}, "timeout": 1800}
    if command[0] in ENTRY_POINTS:
        result = run_forked(command, **options)
    else:
        if (BIN / command[0]).exists():
            command[0] = str(BIN / command[0])
        result = subprocess.run(command, capture_output=True, text=True, **options)
    if check:
        assert result.returncode == 0, (
            f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
        )
    return result


def words(arguments):
    """A command line of arguments; an option with spaces is several of them, and "" is none."""
    found = []
    for argument in map(str, arguments):
        is_option = argument.startswith("--") or not argument
        found += argument.split() if is_option else [argument]
    return found


def call(program, *arguments):
    """Exit status, output, logged lines and errors of a command line of fairseq in this process,
    with this package."""
    from fairseq import checkpoint_utils

    out, err, log = io.StringIO(), io.StringIO(), io.StringIO()
    root, level, before = logging.getLogger(), logging.root.level, sys.argv
    handlers = {logger: list(logger.handlers) for logger in _loggers()}
    root.addHandler(logging.StreamHandler(log))
    root.setLevel(logging.INFO)
    vars(checkpoint_utils.save_checkpoint).pop("best", None)  # of the last call in this process
    is_plain = program == "preprocess" or "--user-dir" in arguments
    plugin = () if is_plain else ("--user-dir", USER_DIR)
    sys.argv = words((f"fairseq-{program}", *arguments, *plugin))
    status = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            importlib.import_module(f"fairseq_cli.{program.replace('-', '_')}").cli_main()
    except SystemExit as stop:
        status = stop.code
    finally:
        sys.argv = before
        root.setLevel(level)
        for logger in _loggers():
            logger.handlers[:] = handlers.get(logger, [])  # less those of --log-file
    return status, out.getvalue(), log.getvalue(), err.getvalue()


def _loggers():
    loggers = logging.root.manager.loggerDict.values()  # some are placeholders
    return [logging.root, *(logger for logger in loggers if isinstance(logger, logging.Logger))]


def called(program, *arguments):
    """What a command line printed and logged; it has to succeed."""
    status, out, log, err = call(program, *arguments)
    assert not status, err[-3000:]
    return out + log


def options_of_workers(folder):
    """For each of two workers over gloo, the options that make it one. They meet at a file: a port
    could be taken."""
    shared = (
        "--distributed-backend gloo --distributed-no-spawn --distributed-world-size 2 "
        f"--distributed-init-method file://{folder}/meeting-{uuid.uuid4()} --distributed-rank"
    ).split()
    return [[*shared, str(rank)] for rank in range(2)]


def zipf_text(lines, words=60, seed=0, prefix="w"):
    """Sentences whose words follow Zipf's law: some frequent, most rare."""
    generator = random.Random(seed)
    vocabulary = [f"{prefix}{index}" for index in range(words)]
    weights = [1 / (rank + 1) for rank in range(words)]
    return [
        " ".join(generator.choices(vocabulary, weights, k=generator.randint(3, 12)))
        for _ in range(lines)
    ]


def zipf_splits(train, held_out, words=60):
    """`zipf_text` of so many lines for each split."""
    sizes = {"train": train, "valid": held_out, "test": held_out}
    return {
        split: zipf_text(lines, words, seed) for seed, (split, lines) in enumerate(sizes.items())
    }


@functools.cache
def documentation():
    """The paragraphs of Python's language reference, each once: 57,000 words that every Python
    has."""
    topics = pydoc_data.topics.topics
    return list(dict.fromkeys(line for name in sorted(topics) for line in paragraphs(topics[name])))


def sentence_pairs(count):
    """Lines of at most 12 words in English, and the same with umlauts and German quotes."""
    plain = (re.sub(r"[^A-Za-z ,-]", "", line) for line in documentation()[:count])
    english = [f"{' '.join(line.split()[:12])}." for line in plain]
    other = [line.replace("u", "ü") for line in english]
    return english, [f"„{line}“" if row % 50 == 0 else line for row, line in enumerate(other)]


@pytest.fixture(scope="session")
def gpt2_bpe(tmp_path_factory):
    """A folder with sub-words learned as GPT-2's were, in files of the same names and format."""
    from tokenizers import ByteLevelBPETokenizer

    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(documentation(), 2000, show_progress=False)
    vocabulary, merges = map(Path, tokenizer.save_model(str(folder)))
    vocabulary.rename(folder / "encoder.json")
    merges.rename(folder / "vocab.bpe")
    return folder


def read_lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def diff_sides(text):
    """Of each diff in a page, the program before and after."""
    for diff in re.findall(r"```diff\n(.*?)```", text, re.DOTALL):
        lines = diff.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
        after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
        yield before, after


def table_cells(printed):
    """The cells of the lines of tables among what was printed, titles included; a bar in a cell is
    escaped."""
    lines = [line.replace("\\|", "¦") for line in printed.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def preprocessed(folder, texts, *options, to="bin"):
    """Writes texts, by the names of their files, into a folder, and binarizes them there."""
    for name, lines in texts.items():
        write_lines(folder / name, lines)
    prefixes = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    called("preprocess", *prefixes, f"--destdir={folder / to}", *options)
    return folder / to


@pytest.fixture(scope="session")
def lm_data(tmp_path_factory):
    """A binarized monolingual corpus of 60 words."""
    return preprocessed(tmp_path_factory.mktemp("lm"), zipf_splits(120, 20), "--only-source")


@pytest.fixture(scope="session")
def prepared_data(tmp_path_factory):
    """A corpus of 60 words as a prepare.sh would leave it; fairseq needs 8 blocks of 128 tokens in
    a split."""
    folder = tmp_path_factory.mktemp("prepared")
    texts, to = zipf_splits(600, 200), folder / "data-bin"
    preprocessed(tmp_path_factory.mktemp("text"), texts, "--only-source", to=to)
    (folder / "manifest.json").write_text(json.dumps({"corpus": "zipf", "bpe": {"kind": "words"}}))
    return folder


@pytest.fixture(scope="session")
def mt_data(tmp_path_factory):
    """A binarized parallel corpus with a joined dictionary: the target says the source
    backwards."""
    texts = {}
    for split, lines in zipf_splits(80, 12, words=30).items():
        texts[f"{split}.en"] = lines
        texts[f"{split}.de"] = [" ".join(line.replace("w", "t").split()[::-1]) for line in lines]
    languages = ("-s", "en", "-t", "de", "--joined-dictionary")
    return preprocessed(tmp_path_factory.mktemp("mt"), texts, *languages)


TINY_LM = (
    "--task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 16 "
    "--decoder-input-dim 16 --decoder-output-dim 16 --decoder-ffn-embed-dim 16 "
    "--decoder-attention-heads 2 --tokens-per-sample 16 --max-tokens 64"
).split()
TRAINING = (
    "--optimizer adam --lr 0.01 --cpu --seed 3 --num-workers 0 --log-format json --log-interval 1 "
    "--no-epoch-checkpoints"
).split()
SMALL_LM = [
    *TINY_LM, "--share-decoder-input-output-embed", *TRAINING, "--max-update", "6", "--save-interval-updates", "2",
]  # fmt: skip


@pytest.fixture(scope="session")
def translator(mt_data, tmp_path_factory):
    """A checkpoint of a translation model with one embedding for all."""
    from tests.commands import save_model
    from tests.small_trainings import MT

    return save_model(
        tmp_path_factory.mktemp("mt") / "checkpoint.pt", mt_data, "--share-all-embeddings", base=MT
    )


@pytest.fixture(scope="session")
def lm_runs(lm_data, tmp_path_factory):
    """A folder with the runs `mle` and `agg` of fairseq-train: a checkpoint every 2 of 6 updates,
    and `train.log`."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in {"mle": (), "agg": ("--agg-rare-fraction", "0.3")}.items():
        run = folder / name
        run.mkdir()
        saved = ("--save-dir", run, "--log-file", run / "train.log")
        called("train", lm_data, *SMALL_LM, "--criterion", name, *options, *saved)
    return folder
