#!/usr/bin/env bash
# Trains one small language model with every objective of the package on WikiText-2, same seed and updates, and prints
# the table of docs/results.md. Resumes what was interrupted. All options go to scripts/demo.sh; see its --help.
set -euo pipefail

rare='--agg-rare-fraction 0.3'
models=(
  "mle --criterion mle"
  "freeze --criterion freeze_rare"
  "freeze-b --criterion freeze_rare --freeze-parts b"
  "freeze-c --criterion freeze_rare --freeze-parts c"
  "freeze-bc --criterion freeze_rare --freeze-parts bc"
  "agg --criterion agg $rare"
  "agg-no-g1 --criterion agg $rare --agg-gates g2"
  "agg-no-g2 --criterion agg $rare --agg-gates g1"
  "agg-static --criterion agg $rare --agg-static-after-epoch 1"
  "agps --criterion agps --agps-rare-rank 5650 --agps-mu1 200 --agps-mu2 20"
  "cosreg --criterion cosreg"
  "ul --criterion unlikelihood"
  "ul-agg --criterion agg $rare --ul-alpha 1"
  "agg-faded --criterion agg $rare --agg-gates faded"
  "agg-faded-0.6 --criterion agg --agg-rare-fraction 0.6 --agg-gates faded"
  "agg-0.1 --criterion agg --agg-rare-fraction 0.1"
  "agg-continuous-0.1 --criterion agg --agg-rare-fraction 0.1 --agg-gates continuous"
  "agg-continuous --criterion agg $rare --agg-gates continuous"
)
options=()
for model in "${models[@]}"; do options+=(--model "$model"); done
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec bash "$here/demo.sh" --corpus wikitext --output runs/objectives --vocabulary 10000 --dimension 64 \
  --updates 2200 "${options[@]}" "$@"
