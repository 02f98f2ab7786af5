"""Compares generated texts with the human texts that follow the same prefixes, which are the row
`human`.

With --data, the table also has the shares of frequent, medium, rare and very rare tokens, and of
those that never occur in training (unseen).

    agg-fairseq text-metrics mle.jsonl agg.jsonl --data data-bin/wikitext-2

Reference: Choi et al. (2020), Sec. 4.1.5, Tables 1 to 3.
"""

from ..columns import GENERATED_TEXTS
from .options import Files, calling

EXPLAINED = (*GENERATED_TEXTS, "token_share")
TEXTS = Files("FILE", "texts, as agg-fairseq generate-lm writes them", "stem")
add_arguments, run = calling("evaluation.texts", "text_metrics", TEXTS)
