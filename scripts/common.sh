# shellcheck shell=bash disable=SC2154
# What the scripts that train small models share; sourced by them, after they have set `program`, the name that their
# messages begin with. `bin`, `user_dir` and `output` are set by then for what runs something.

unset CDPATH # with it, cd would print where it goes

fail() { echo "$program: error: $*" >&2; exit 2; }

expect_whole_numbers() { # OPTION…: of these variables, whose names are those of the options
  local option
  for option in "$@"; do
    [[ ${!option} =~ ^[1-9][0-9]*$ ]] || fail "--${option//_/-}: found '${!option}'; expected a whole number from 1"
  done
}

make_absolute() { # OPTION…: folders in variables named like the options, as seen from where the user is
  local option path # no $(…), which would take line ends off
  for option in "$@"; do
    path=${!option}
    case $path in '' | /*) ;; *) path=$PWD/$path ;; esac
    case $path in
      '' | *:* | *"\${"* | *$'\n'*)
        path=${path//$'\n'/\\n}
        fail "--$option: found '$path'; expected a path without ':', '\${' and line ends: fairseq cannot take these" ;;
    esac
    printf -v "$option" '%s' "$path"
  done
}

tenth() { # UPDATES: after how many of them a checkpoint is written, so that what is interrupted goes on from there
  echo $(($1 < 10 ? 1 : $1 / 10))
}

keep_settings() { # TEXT: of all that is in the output folder, which is made
  mkdir -p -- "$output"
  if [ -f "$output/settings" ] && [ "$(cat -- "$output/settings")" != "$1" ]; then
    fail "$output holds a run with other settings ($(cat -- "$output/settings")); remove it or choose another --output"
  fi
  printf '%s\n' "$1" > "$output/settings"
}

share_cores() { # JOBS: the threads of each of several programs side by side
  local threads
  [ "$1" -gt 1 ] || return 0
  threads=$(($(nproc) / $1))
  export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
}

quietly() { # NAME COMMAND…: one whose output, in NAME.log and NAME.log.messages, matters only if it fails
  local name=$1 log=$output/$1.log
  shift
  if ! "$@" > "$log" 2> "$log.messages"; then
    tail -n 20 -- "$log" "$log.messages" >&2
    echo "$program: error: $name failed; its output is in $log" >&2
    exit 1
  fi
}

train() { # NAME FIXED… -- OPTION…: a model by fairseq-train, unless it is trained; another of that name is refused
  local name=$1 fixed=()
  shift
  while [ "$1" != -- ]; do fixed+=("$1") && shift; done
  shift
  if [ -f "$output/$name/options" ] && [ "$(cat -- "$output/$name/options")" != "$*" ]; then
    fail "$output/$name holds a model with other options ($(cat -- "$output/$name/options")); remove it or rename this one"
  fi
  [ ! -f "$output/$name/done" ] || { echo "$program: $name is trained already"; return 0; }
  mkdir -p -- "$output/$name"
  printf '%s\n' "$*" > "$output/$name/options"
  # --data-buffer-size 0: fairseq's thread that loads ahead can outlive the training, and abort the process at its exit
  if ! "$bin/fairseq-train" "$output/data-bin" --user-dir "$user_dir" --save-dir "$output/$name" \
    --no-epoch-checkpoints --data-buffer-size 0 --log-format json --log-file "$output/$name/train.log" \
    "${fixed[@]}" "$@" 2>&1 |
    tee -- "$output/$name/output.log" | "$bin/python" scripts/run.py scripts.progress "$name"; then
    tail -n 20 -- "$output/$name/output.log" >&2
    echo "$program: error: training $name failed; its output is in $output/$name/output.log" >&2
    exit 1
  fi
  touch -- "$output/$name/done"
}
