#!/usr/bin/env bash
# The ordinary softmax beside the factorized output layer: perplexities, then texts, small language models (docs/results.md).
#
#   data   all words of WikiText-2
#   rows   2 layers of 128, 2,200 updates of 2,048 tokens (configs/demo/mle.yaml). f2 has MefMax's classes; the others N of equal
#          frequency mass or of equally many tokens; -greedy: not drawn from the top 3; -joint: not decoupled
RUNS=${RUNS:-runs/f2-softmax} SIZE=paper
. "$(dirname -- "$0")/../env.sh"
corpus $RUNS wikitext2/prepare.sh --tokenizer words --vocabulary 40000
config=demo/mle
shared="optimization.max_update=2200 checkpoint.save_interval_updates=220 dataset.required_batch_size_multiple=8"
f2="model._name=transformer_lm_f2 criterion._name=f2_softmax"
variant mle
variant f2 $f2
for classes in equal-frequency-4 equal-frequency-18 equal-token-4 equal-token-13; do
  variant $classes $f2 model.f2_assignment=${classes%-*} model.f2_classes=${classes##*-}
done

eval_lm eval.json
for row in $rows; do
  if [ $row = mle ]; then
    continue_texts mle mle texts --topk 3
    continue_texts mle-greedy mle texts
  else
    continue_texts $row $row texts --topk 3 --f2-decoding sample-class
  fi
  if [ $row = f2 ]; then
    continue_texts f2-joint f2 texts --topk 3 --f2-decoding joint
    continue_texts f2-greedy f2 texts --f2-decoding greedy-class
    continue_texts f2-greedy-joint f2 texts --f2-decoding joint
  fi
done
table f2
