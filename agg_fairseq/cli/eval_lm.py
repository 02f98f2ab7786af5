"""`agg-fairseq eval-lm`."""

import argparse

from ..awd_lstm.continuous_cache import CacheOptions
from ..checkpoints import open_models
from ..errors import UserError
from ..evaluation import perplexity
from ..evaluation.perplexity import COMPARED
from ..evaluation.scoring import BREAK_MODES
from .options import add_json, add_options, check_json, description, options_of, print_result

CACHE = {"theta": 0.662, "lambda": 0.1279}  # of the authors of AWD-LSTM for WikiText-2, with 3,785 positions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The models, the options of `perplexity`, and those of a continuous cache, which are one parameter there."""
    parser.description = description(perplexity)
    parser.add_argument("--path", nargs="+", required=True, metavar="CKPT", help="models, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name for each model (default: that of its folder)")
    add_options(parser, perplexity, data={"flag": "data"}, sample_break_mode={"choices": BREAK_MODES})
    cache_help = "mix the model with a continuous cache of the last N positions (Grave et al. 2017; default: no cache)"
    parser.add_argument("--cache-size", type=int, metavar="N", help=cache_help)
    for name, help_text in (
        ("theta", "how sharply it compares features"),
        ("lambda", "its share in the mixture, 0 to 1"),
    ):
        help_text += f" (default: {CACHE[name]})"
        parser.add_argument(f"--cache-{name}", type=float, metavar="X", help=help_text)
    parser.add_argument("--full", action="store_true", help="print all columns")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Evaluates every checkpoint, prints the table and writes the JSON file."""
    check_json(arguments.json)
    given = {"theta": arguments.cache_theta, "lambda": arguments.cache_lambda}
    given = {name: value for name, value in given.items() if value is not None}
    if given and arguments.cache_size is None:
        raise UserError(f"--cache-{min(given)}: found it without --cache-size; expected both, or neither")
    cache = None if arguments.cache_size is None else CacheOptions(arguments.cache_size, *{**CACHE, **given}.values())
    models = open_models(arguments.path, arguments.name)
    result = perplexity(models, cache=cache, **options_of(perplexity, arguments))
    print_result(result if arguments.full else result.select(COMPARED), arguments.json)
