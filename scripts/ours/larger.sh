#!/usr/bin/env bash
# Which cure a model of 42 million parameters needs, in one epoch: β₂ of Adam, AGG, AGPS, CosReg and F²-Softmax.
#
#   data   WikiText-103 in GPT-2's sub-words; or DATA, prepared
#   rows   6 layers of 512 (configs/wikitext103/size/agg-study.yaml), one epoch of 8,192 tokens per update, β₂ = 0.98 unless
#          the name says another: all-0.999 of all parameters, w-0.999 of the output embedding alone. agg: the rarest 30%,
#          counted over K = 2N updates, WINDOW (`agg-fairseq groups` prints N; 1,000 fits a text of 24 million tokens); agps
#          and cosreg as in their papers. 4 minutes for 24 million tokens on an NVIDIA H200, five trainings at once
RUNS=${RUNS:-runs/larger-${SIZE:-paper}}
. "$(dirname -- "$0")/../env.sh"
corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
shared="size=$(size agg-study) dataset.max_tokens=8192 optimization.update_freq=[1] optimization.max_epoch=1
  lr_scheduler.warmup_updates=300"
tokens=8192 window=${WINDOW:-1000}
if [ "$SIZE" = tiny ]; then shared=size=tiny tokens=2048 window=100; fi
train wikitext103/mle mle $shared
train wikitext103/mle all-0.999 $shared $beta2
train wikitext103/mle w-0.999 $shared optimizer._name=embedding_adam optimizer.embedding_beta2=0.999
train wikitext103/agg agg $shared criterion.agg_alpha=null criterion.agg_rare_fraction=0.3 criterion.agg_window=$window
train wikitext103/agps agps $shared
train wikitext103/cosreg cosreg $shared
train wikitext103/f2 f2 $shared

print agg-fairseq groups $data/data-bin --tokens-per-update $tokens --rare-fraction 0.3 --beta2 0.98 --epochs 1
eval_lm --calibrate valid eval.json
table larger --changes
