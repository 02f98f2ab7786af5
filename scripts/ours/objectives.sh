#!/usr/bin/env bash
# AGG and its variants, freezing, AGPS, CosReg and unlikelihood on one small language model (docs/results.md).
#
#   data   WikiText-2 in its 10,000 most frequent words
#   rows   2 layers of 64, 2,200 updates of 2,048 tokens (configs/demo/mle.yaml)
RUNS=${RUNS:-runs/objectives} SIZE=paper
. "$(dirname -- "$0")/../env.sh"
corpus $RUNS wikitext2/prepare.sh --tokenizer words --vocabulary 10000
shared="optimization.max_update=2200 checkpoint.save_interval_updates=220 dataset.required_batch_size_multiple=8
  model.decoder_embed_dim=64 model.decoder_input_dim=64 model.decoder_output_dim=64 model.decoder_ffn_embed_dim=256"
agg="criterion._name=agg criterion.agg_rare_fraction=0.3"
train demo/mle mle $shared
for parts in all b c bc; do
  train demo/mle freeze-$parts $shared criterion._name=freeze_rare criterion.freeze_parts=$parts
done
train demo/mle agg $shared $agg
train demo/mle agg-no-g1 $shared $agg criterion.agg_gates=g2
train demo/mle agg-no-g2 $shared $agg criterion.agg_gates=g1
train demo/mle agg-static $shared $agg criterion.agg_static_after_epoch=1
train demo/mle agps $shared criterion._name=agps criterion.agps_rare_rank=930 criterion.agps_mu1=500 criterion.agps_mu2=20
train demo/mle cosreg $shared criterion._name=cosreg
train demo/mle ul $shared criterion._name=unlikelihood
train demo/mle ul-agg $shared $agg criterion.ul_alpha=1
train demo/mle agg-0.1 $shared criterion._name=agg criterion.agg_rare_fraction=0.1

eval_lm eval.json
table objectives
