"""What the tests of prepared corpora share: the scripts, with or without fairseq-preprocess, and
what it writes."""

from fairseq.data import Dictionary, data_utils

from tests.conftest import ROOT, run_command

# A function of bash takes the place of the program, whose start takes seconds.
STUB = {
    "BASH_FUNC_fairseq-preprocess%%": """() {
    touch "$2"/{train.bin,dict.txt,dict.en.txt}
    echo "[en] tokens of ${*:3}"
}"""
}


def prepare(corpus, *arguments, cwd, whole=False, check=True):
    """Runs scripts/CORPUS/prepare.sh; `whole` runs fairseq-preprocess too."""
    script = ROOT / "scripts" / corpus / "prepare.sh"
    command = ("bash", script, "--workers", "1", *arguments)
    return run_command(*command, cwd=cwd, env=None if whole else STUB, check=check)


def refused(corpus, *arguments, cwd):
    """The last line that a script printed, which has to end with status 2."""
    result = prepare(corpus, *arguments, cwd=cwd, check=False)
    assert result.returncode == 2, result.stderr
    return result.stderr.splitlines()[-1]


def binarized(folder, split, dictionary="dict.txt"):
    symbols = Dictionary.load(str(folder / "data-bin" / dictionary))
    dataset = data_utils.load_indexed_dataset(str(folder / "data-bin" / split), symbols)
    return [[symbols[index] for index in line[:-1]] for line in dataset]
