"""Converts a model that was trained with the ordinary softmax into one with the factorized output layer.

Inside each frequency class the new model predicts the same probabilities as the old one. The embeddings of the classes
are fitted on the training split, so that the joint distribution is as close to the softmax as possible in KL
divergence, which the table shows for the validation split; the row `mean`, with the mean of each class's tokens, is the
starting point. To continue training it, with the sizes and the tying of the old model:

    agg-fairseq convert-to-f2 runs/mle/checkpoint_best.pt --data data-bin/wikitext-2 -o f2.pt
    fairseq-train data-bin/wikitext-2 --user-dir "$(agg-fairseq user-dir)" --finetune-from-model f2.pt \\
        --arch transformer_lm_f2 --criterion f2_softmax …

Reference: Choi et al. (2020), App. C.
"""

from ..f2.conversion import convert_to_f2
from .options import add_model, calling

add_arguments, run = calling(convert_to_f2, add_model)
