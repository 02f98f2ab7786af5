"""What the tests of prepared corpora share: fairseq-preprocess in this process, and what it has written."""

import os

from fairseq.data import Dictionary, data_utils

from scripts.data.files import digest
from scripts.data.prepared_folder import SPLITS
from tests.conftest import called


def binarize_here(text, folder, workers, options):
    """`prepared_folder.binarize` without a process of its own, whose start takes seconds."""
    before = os.getcwd()
    os.chdir(text.parent)
    try:
        prefixes = [f"--{split}pref={text.name}/{split}" for split in SPLITS]
        called("preprocess", *prefixes, f"--destdir={folder}", f"--workers={workers}", *options)
    finally:
        os.chdir(before)


def binarized(folder, split, dictionary="dict.txt"):
    symbols = Dictionary.load(str(folder / "data-bin" / dictionary))
    dataset = data_utils.load_indexed_dataset(str(folder / "data-bin" / split), symbols)
    return [[symbols[index] for index in line[:-1]] for line in dataset]


def digests(folder, *parts):
    """What is in some folders of a prepared one, by file, but for logs."""
    return {
        str(path.relative_to(folder)): digest(path)
        for part in parts
        for path in sorted((folder / part).rglob("*"))
        if path.is_file() and path.name != "preprocess.log"
    }
