#!/usr/bin/env bash
# The memory of Adam, and cures, where rare tokens appear once in a thousand updates (docs/why.md).
#
#   data   all words of WikiText-2
#   rows   2 layers of 64, 4,080 updates of 512 tokens, 9 minutes each on a core of an AMD EPYC; larger: 4 layers of 256, an hour
RUNS=${RUNS:-runs/large-vocabulary} SIZE=paper
. "$(dirname -- "$0")/../env.sh"
corpus $RUNS wikitext2/prepare.sh --tokenizer words --vocabulary 40000
config=cures/mle
shared="optimization.max_update=4080 optimization.lr=[0.01] lr_scheduler.end_learning_rate=0.001 dataset.max_tokens=512"
larger="model.decoder_layers=4 model.decoder_embed_dim=256 model.decoder_input_dim=256 model.decoder_output_dim=256
  model.decoder_ffn_embed_dim=1024 optimization.lr=[0.003]"
variant mle
variant all-0.999 $beta2
variant all-0.9999 "optimizer.adam_betas='(0.9,0.9999)'"
variant w-0.999 optimizer._name=embedding_adam optimizer.embedding_beta2=0.999
variant bias-fixed-0.999 model._name=transformer_lm_unigram model.unigram_bias=fixed $beta2
variant agg-0.999 criterion._name=agg criterion.agg_rare_fraction=0.3 criterion.agg_window=2400 $beta2
variant larger $larger
variant larger-0.999 $larger $beta2

eval_lm --calibrate valid eval.json
table large-vocabulary --changes
