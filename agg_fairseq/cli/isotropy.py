"""Measures how evenly the output embeddings of models are distributed over all directions.

Values are in float64, over all rows of the embedding W, including those of special tokens, which
are in no group. With --data or --train-text, I(W), I(W−μ) and IsoScore are also measured for each
group.

    agg-fairseq isotropy runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
    agg-fairseq isotropy models/gpt2 --train-text wiki.train.tokens

Reference: Yu et al. (2022), Eq. 3, Tables 10 and 11; Gao et al. (2019), Fig. 2b; Rudman et al.
    (2022).
"""

from ..columns import EMBEDDINGS
from .options import MODELS, calling

EXPLAINED = tuple(EMBEDDINGS)
add_arguments, run = calling("evaluation.isotropy", "isotropy", MODELS, transposed=True)
