"""Scores translations of one split that fairseq-generate printed, side by side.

BLEU is comparable only between models whose text was tokenized in the same way. Report sacreBLEU,
which compares plain text with the untokenized target side of the split. Of several hypotheses for a
sentence, the best one counts.

fairseq-generate must have joined the sub-words (--remove-bpe, or --remove-bpe sentencepiece). If
the text then consists of Moses tokens, as in the usual WMT data, give --moses; not for text that
was never tokenized, such as that of a sentencepiece model. In German, tokenized BLEU splits
compounds.

    fairseq-generate data-bin/wmt14 --user-dir "$(agg-fairseq user-dir)" --path c.pt --remove-bpe \\
        --required-batch-size-multiple 1 … > mle.log
    agg-fairseq bleu mle.log agg.log --reference newstest2014.de --moses de

Reference: Vaswani et al. (2017); Post (2018).
"""

from .options import Files, calling

LOGS = Files("LOG", "outputs of fairseq-generate", "stem")
add_arguments, run = calling("evaluation.bleu", "bleu", LOGS)
