#!/usr/bin/env bash
# AGG, Figure 1 (Yu et al. 2022): the embeddings of plain likelihood after 100, 500, 1,500 and 3,500 updates.
#
#   rows     early: the beginning of study-mle (configs/wikitext103/size/agg-study.yaml), with all its checkpoints
#   takes    0.2 GPU hours, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet; 18 GB of checkpoints
#   differs  at tiny, after 20, 100, 300 and 700 updates
. "$(dirname -- "$0")/../env.sh"
updates=(100 500 1500 3500)
if [ "$SIZE" = tiny ]; then updates=(20 100 300 700); fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/mle early size=$(size agg-study) checkpoint.save_interval_updates=${updates[0]} \
  checkpoint.keep_interval_updates=-1 optimization.max_update=${updates[3]}

once $RUNS/agg-figure-1.png agg-fairseq plot projection $(after early "${updates[@]}") --name "${updates[@]}" \
  --data $data/data-bin -o $RUNS/agg-figure-1.png
print echo $RUNS/agg-figure-1.png
