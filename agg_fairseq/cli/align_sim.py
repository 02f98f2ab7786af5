"""Measures whether embeddings are similar for words of two languages that were aligned.

AlignSim (0 to 1) of a token is the cosine of two vectors over the joined vocabulary: how often it
was aligned with each other token, and the softmax of 10 × the cosines of its embedding with all
embeddings. The table has the mean over the tokens that were aligned ("labeled tokens"), by
frequency in the target side. The row `orthogonal` is of embeddings without any information.

    agg-fairseq align-sim runs/mle/checkpoint_best.pt runs/agps/checkpoint_best.pt --data data-bin/wmt14.en-de \\
        --alignments wmt14.en-de.align

Reference: Yu et al. (2021), Eqs. 16 and 17, Table 3.
"""

from .options import MODELS, calling

add_arguments, run = calling("evaluation.alignments", "align_sim", MODELS)
