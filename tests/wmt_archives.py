"""Archives of WMT14's names and layout, of a few lines each: the same bytes whenever they are made."""

import gzip
import io
import tarfile

EUROPARL, COMMON_CRAWL, NEWS_COMMENTARY, DEV, TEST = (
    "training-parallel-europarl-v7.tgz", "training-parallel-commoncrawl.tgz", "training-parallel-nc-v9.tgz", "dev.tgz",
    "test-full.tgz",
)  # fmt: skip
SGM = '<doc><seg id="1">{0} &amp; {0}</seg>\n<seg id="2">{0}</seg></doc>\n'
MEMBERS = {
    EUROPARL: {"training/europarl-v7.cs-en.{0}": "wrong\n", "training/europarl-v7.de-en.{0}": "{0} word\n{0} words\n"},
    COMMON_CRAWL: {"commoncrawl.de-en.{0}": "{0} crawl\n"},
    NEWS_COMMENTARY: {"training/news-commentary-v9.de-en.{0}": "{0} news\n"},
    DEV: {"dev/newstest2012-{1}.{0}.sgm": SGM, "dev/newstest2013.{0}": "{0} dev\n"},
    TEST: {"test-full/newstest2014-csen-{1}.{0}.sgm": "wrong", "test-full/newstest2014-deen-{1}.{0}.sgm": SGM},
}
"""The files of each; `{0}` is the language, and `{1}` whether it is the source or the reference."""
TEXTS = {
    "train": ["{0} word", "{0} words", "{0} crawl", "{0} news"],
    "valid": ["{0} & {0}", "{0}", "{0} dev"],
    "test": ["{0} & {0}", "{0}"],
}
"""The sentences of each split in them."""


def write_archives(folder):
    folder.mkdir(exist_ok=True)
    for name, members in MEMBERS.items():
        sides = (("en", "src"), ("de", "ref"))
        texts = {member.format(*side): text.format(*side) for member, text in members.items() for side in sides}
        write_archive(folder / name, texts)
    return folder


def write_archive(path, texts):
    # gzip and tarfile would write the time of day
    with gzip.GzipFile(path, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as file:
        for name, text in texts.items():
            content = text if isinstance(text, bytes) else text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def sentences(split, language):
    return [line.format(language) for line in TEXTS[split]]
