"""The evaluations behind the commands, as functions: checkpoints, data and options in, a `Result`
out.

docs/evaluation.md has examples; `agg-fairseq COMMAND --help` explains each table and has the
references. A `Result` has the measures of `columns.METRICS` by their names, None where they are not
defined. Beside them, rows have the `path` of what was measured, and its `matrix`; facts have the
sizes of `groups`. `result["row"]` shows what else there is, and docs/evaluation.md explains it.

Shared arguments:
    models: by the names of their rows, as `open_models` returns them; all over one vocabulary.
    data: folder of `fairseq-preprocess`, with the training split, in which tokens are counted.
    train_text: for models of transformers, text in UTF-8 in which tokens are counted instead.
    groups: which tokens are frequent, medium and rare.
    occurrences_in: group tokens instead by how often they occur in another text: 100 times or more,
        1 to 99 times, or never. The text is the training split of a folder with the same
        dictionary, or for models of transformers a file.
    tokenizer: how words are split into tokens of the dictionary; models of transformers have one of
        their own.
    max_tokens: tokens per batch; None: 2048, or a block where that is longer.
    device: cpu, cuda, cuda:1, …; None: a GPU if there is one.
    output: file to write.
    force: replace an existing file.
"""

from ..data.subwords import TokenizerOptions
from ..result import Result
from .alignments import align_sim, align_split
from .bleu import bleu
from .group_shares import group_shares
from .isotropy import isotropy
from .perplexity import calibrate, perplexity
from .scoring import BinarizedText, PlainText
from .texts import generate_texts, text_metrics
from .words import neighbors, word_similarity

__all__ = [
    "Result", "BinarizedText", "PlainText", "TokenizerOptions",
    "perplexity", "calibrate", "group_shares", "isotropy",
    "neighbors", "word_similarity", "align_split", "align_sim", "generate_texts", "text_metrics", "bleu",
]  # fmt: skip
