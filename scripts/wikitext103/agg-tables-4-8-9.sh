#!/usr/bin/env bash
# AGG, Tables 4, 8, 9 and 11, Figures 4 and 5 (Yu et al. 2022): unlikelihood; AGG without a gate, a fixed rare group; α.
#
#   rows     mle, agg (those of Table 3); ul, ul-agg; no-g1, no-g2; static, with the rare group of the first epoch; alpha-0.01,
#            0.02, 0.04 and 0.05, beside agg with 0.03: GPT-2 medium (configs/wikitext103/size/agg.yaml); agg-early, 1,000
#            updates, for Figure 4
#   takes    66 to 77 hours of an H200, 6 to 7 each; 125 GB
#   differs  candidates of unlikelihood come from the same sequence alone, and gates act on its gradient too, of which the
#            paper says nothing; its Uniq of human text, 18920, is the sum 18290. Figures 4 and 5 are pictures without
#            numbers; the first updates of Figure 4 have rates of a/u, not a/K (docs/reproduction.md). At tiny, rare is the
#            rarest 5% (of alpha-0.01, 1%) at each update instead of an α, and Figure 4 has 300 updates
. "$(dirname -- "$0")/../env.sh"
key=criterion.agg_alpha early=1000
case $SIZE in small) early=300 ;; tiny) key=criterion.agg_rare_fraction early=300 ;; esac

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
config=wikitext103/agg shared="size=$(size agg) $alpha"
train wikitext103/mle mle size=$(size agg)
variant agg
both=$rows
train wikitext103/ul ul size=$(size agg)
variant ul-agg criterion.ul_alpha=1
variant no-g1 criterion.agg_gates=g2
variant no-g2 criterion.agg_gates=g1
variant static criterion.agg_static_after_epoch=1
for value in 0.01 0.02 0.04 0.05; do
  train wikitext103/agg alpha-$value size=$(size agg) $key=$value
done

eval_lm $block $context ppl.json
eval_lm $block uniq.json
table agg-table-4
table agg-table-11
table agg-tables-8-9

sweep=''
for row in $rows; do case $row in alpha-*) sweep="$sweep $row" ;; esac; done
if [ -n "$sweep" ]; then
  rows="$both $sweep"
  plot alpha-sweep $(in_folders uniq.json) agg-figure-5
  table agg-figure-5
fi

rows=''
variant agg-early common.log_interval=1 optimization.max_update=$early
for row in $rows; do
  plot rare-tokens $RUNS/$row/train.log agg-figure-4
done
