"""Aligns the words of a parallel training split, as `align-sim` needs them.

eflomal (`pip install '.[align]'`), which cannot be seeded, aligns both directions; a link is one
that both have. The file has a line for each sentence pair, `0-0 1-2 …`: the positions, from 0, of a
source and a target token for each link. Sentences of more than 1023 tokens have none. The
table has the number of pairs.

    agg-fairseq align data-bin/wmt14.en-de -o wmt14.en-de.align

Reference: Östling and Tiedemann (2016).
"""

from .options import calling

add_arguments, run = calling("evaluation.alignments", "align_split")
