#!/usr/bin/env bash
# Runs the scripts of tables and figures, by their names in --list, one after the other; KEY=VALUE and variables go to each:
#   DRY_RUN=1 bash scripts/reproduce.sh agg-table-3 agps-tables-1-2
# scripts/env.sh explains the variables.
set -euo pipefail
scripts=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
entries() { grep -l '/env\.sh"$' "$scripts"/{wikitext103,wmt14_en_de,wikitext2,ours}/*.sh; }
names=() options=()
for word in "$@"; do
  case $word in
    -h | --help) sed -n '2,4s/^# \?//p' "$0" && exit ;;
    --list) entries | while read -r file; do printf '%-29s  %s\n' "${file#"$scripts"/}" "$(sed -n '2s/^# //p' "$file")"; done; exit ;;
    *=*) options+=("$word") ;;
    *) names+=("$word") ;;
  esac
done
[ ${#names[@]} -gt 0 ] || { echo "reproduce: error: found no NAME; expected some that --list prints" >&2; exit 2; }
for name in "${names[@]}"; do
  file=$(entries | grep -x "$scripts/\(.*/\)\?${name%.sh}.sh" || true)
  [ -f "$file" ] || { echo "reproduce: error: found the name $name; expected one that --list prints" >&2; exit 2; }
  files+=("$file")
done
for file in "${files[@]}"; do bash "$file" ${options[@]+"${options[@]}"}; done
