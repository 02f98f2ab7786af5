#!/usr/bin/env bash
# AGG, Tables 1 and 2, Figures 1 and 2 (Yu et al. 2022): the embeddings of rare tokens frozen, whole or in parts of their gradient.
#
#   rows     study-mle, study-freeze, study-freeze-bc, -b, -c: 6 layers, 40,000 updates (configs/wikitext103/size/agg-study.yaml)
#            Figure 1, the embeddings after 100 to 3,500 updates: early, the beginning of study-mle
#            Figure 2, isotropy while rare embeddings are frozen, and after: until-7000, until-18000, until-29000
#   takes    7 to 11 hours of an H200, 0.9 to 1.3 each; 49 GB, of which 15 for Figure 1, and 9 for each row of Figure 2
#   differs  the paper does not give all settings of this model; those that are ours are in the configuration. At small, of
#            10,000 updates, and at tiny, of 600, embeddings are frozen for the same shares of the training
. "$(dirname -- "$0")/../env.sh"
after=(100 500 1500 3500) until=(7000 18000 29000)
case $SIZE in
  small) until=(420 1080 1740) after=(20 60 120 240) ;;
  tiny) after=(5 10 20 40) until=(105 270 435) ;;
esac

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
config=wikitext103/freeze shared=size=$(size agg-study)
train wikitext103/mle study-mle $shared
variant study-freeze
for parts in bc b c; do variant study-freeze-$parts criterion.freeze_parts=$parts; done
eval_lm $block $context ppl.json
table agg-tables-1-2

rows=''
train wikitext103/mle early $shared checkpoint.save_interval_updates=${after[0]} \
  checkpoint.keep_interval_updates=-1 optimization.max_update=${after[3]}
finish # so that its checkpoints are there to be listed
for row in $rows; do
  plot projection $(checkpoints $row "${after[@]}") --name "${after[@]}" --data $data/data-bin agg-figure-1
done

rows=''
for updates in "${until[@]}"; do
  train wikitext103/freeze-until until-$updates $shared criterion.freeze_until=$updates
done
if [ -n "$rows" ]; then plot isotropy $(folders) --data $data/data-bin agg-figure-2; fi
