"""Prints a script that completes commands, pictures, options and their choices in bash and zsh.

Add this line to ~/.bashrc or ~/.zshrc:

    eval "$(agg-fairseq completion)"
"""

from __future__ import annotations

import argparse
import shlex

SCRIPT = """\
[ -n "$ZSH_VERSION" ] && autoload -U +X bashcompinit && bashcompinit
_agg_fairseq() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words=""
  [ "$COMP_CWORD" -eq 1 ] && command=""
  [ "$command" = plot ] && [ "$COMP_CWORD" -gt 2 ] && command="plot ${{COMP_WORDS[2]}}"
  case "$command $before" in
{choices}
    *)
      case "$command" in
{options}
      esac ;;
  esac
  [ "${{word#-}}" = "$word" ] && words=$(printf %s "$words" | tr " " "\n" | grep -v ^-)  # file names are completed too
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _agg_fairseq agg-fairseq"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None are needed."""


def run(arguments: argparse.Namespace) -> None:
    """Prints the script."""
    from .main import COMMANDS, build_parser  # which imports this module

    # What can follow each command, and each option of it that has choices.
    options: dict[str, list[str]] = {}
    choices: dict[str, list[str]] = {}
    waiting = [("", build_parser(COMMANDS))]
    for command, parser in waiting:
        options[command] = []
        for action in parser._actions:  # argparse has no public list of them
            if isinstance(action, argparse._SubParsersAction):
                options[command] += action.choices
                waiting += [(f"{command} {name}".strip(), one) for name, one in action.choices.items()]
            elif action.choices is not None:
                choices |= {f"{command} {option}": list(action.choices) for option in action.option_strings}
            options[command] += action.option_strings

    def cases(found: dict[str, list[str]], indent: int) -> str:
        lines = (
            f"{shlex.quote(key)}) words={shlex.quote(' '.join(map(str, words)))} ;;" for key, words in found.items()
        )
        return "\n".join(" " * indent + line for line in lines)

    print(SCRIPT.format(choices=cases(choices, 4), options=cases(options, 8)))
