#!/usr/bin/env bash
# Runs the scripts of tables and figures, by their names in --list, one after the other; KEY=VALUE and variables go to each.
# `all` are those of the papers, which end in a table of the papers' claims:
#   DRY_RUN=1 bash scripts/reproduce.sh agg-table-3 agps-tables-1-3
#   SIZE=small bash scripts/reproduce.sh all
# scripts/env.sh explains the variables.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
cd -- "$root/scripts"
entries() { grep -l '/env\.sh"$' {wikitext103,wmt14_en_de,wikitext2,ours}/*.sh; }
files=() options=()
for word in "$@"; do
  case $word in
    --list) entries | while read -r file; do printf '%-31s  %s\n' "$file" "$(sed -n '2s/^# //p' "$file")"; done; exit ;;
    all) for file in $(entries | grep -v '^ours/'); do files+=("$root/scripts/$file"); done ;;
    *=*) options+=("$word") ;;
    *)
      file=$(entries | grep -x "\(.*/\)\?${word%.sh}.sh") || fail "found the name $word; expected one that --list prints"
      files+=("$root/scripts/$file") ;;
  esac
done
[ -z "${MODELS:-}" ] || [ ${#files[@]} = 1 ] || fail "found MODELS; expected one NAME, whose rows they are"
[ ${#files[@]} -gt 0 ] || fail "found no NAME; expected some that --list prints"
cd -- "$OLDPWD"
for file in "${files[@]}"; do # what is missing is said before hours of training
  DRY_RUN=plan bash "$file" ${options[@]+"${options[@]}"} > /dev/null
done
number=0
for file in "${files[@]}"; do
  number=$((number + 1))
  say "$number of ${#files[@]}: $(basename -- "$file" .sh)"
  bash "$file" ${options[@]+"${options[@]}"}
done
if [ -n "${DRY_RUN:-}" ]; then exit; fi
case " $* " in *' all '*) in_venv scripts.claims "${RUNS:-runs/${SIZE:-paper}}" ;; esac
