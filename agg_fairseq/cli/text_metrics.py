"""Compares generated texts with the human texts that follow the same prefixes, which are the row
`human`.

With --data, the table also has the shares of frequent, medium, rare and very rare tokens, and of
those that never occur in training (unseen).

    agg-fairseq text-metrics mle.jsonl agg.jsonl --data data-bin/wikitext-2

Reference: Choi et al. (2020), Sec. 4.1.5, Tables 1 to 3.
"""

from ..evaluation import text_metrics
from ..evaluation.text_metrics import COLUMNS
from .options import add_inputs, calling

EXPLAINED = (*COLUMNS, "token_share")
TEXTS = "texts, as agg-fairseq generate-lm writes them"
add_arguments, run = calling(text_metrics, lambda parser: add_inputs(parser, "FILE", TEXTS, "stem"))
