#!/usr/bin/env bash
# Which second moments of Adam make embeddings degenerate: β₂ of all parameters, of W alone, and interventions.
#
#   data   WikiText-2 in its 10,000 most frequent words
#   rows   plain likelihood, 2 layers of 64, 4,080 updates of 1,024 tokens; 7 minutes each on a core of an AMD EPYC. A name says
#          what has another β₂ than 0.98; the last three are interventions that no page recommends (interventions/)
RUNS=${RUNS:-runs/second-moments} SIZE=paper
. "$(dirname -- "$0")/../env.sh"
corpus $RUNS wikitext2/prepare.sh --tokenizer words --vocabulary 10000
config=cures/mle
shared="optimization.max_update=4080 optimization.lr=[0.01] lr_scheduler.end_learning_rate=0.001"
w_alone="optimizer._name=embedding_adam optimizer.embedding_beta2"
other="common.user_dir=$here/interventions"
variant mle
variant all-0.999 $beta2
variant w-0.999 $w_alone=0.999
variant others-0.999 $w_alone=0.98 $beta2
variant coupled-adam optimizer._name=coupled_adam
variant frequent-0.999 $other optimizer._name=long_memory_of_frequent_rows
variant amsgrad $other optimizer._name=amsgrad_of_w
variant balanced-pushes $other criterion._name=balanced_pushes

eval_lm --calibrate valid eval.json
table second-moments --changes

# How much more strongly Adam pushes rows than it pulls them, at the end of the training.
for row in $rows; do
  run=$RUNS/$row
  case $row in
    mle | all-* | w-* | others-*)
      once python "$here/pushes_and_pulls.py" $run/checkpoint_last.pt --name $row --data $data/data-bin '>' $run/pushes.txt
      print cat $run/pushes.txt ;;
  esac
done
