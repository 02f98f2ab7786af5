"""Perplexity of AWD-LSTMs that carry their state through a split, and of their mixture with a
continuous cache.

    python examples/awd_lstm/evaluate.py runs/awd/checkpoint_best.pt --data DATA --cache-size 3785

Reference: Grave, Joulin & Usunier, "Improving Neural Language Models with a Continuous Cache", ICLR
    2017.
"""

import argparse
import math
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.utils import import_user_module
from tqdm import tqdm

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.errors import UserError, fail
from agg_fairseq.fairseq_plugin.models import build_model
from agg_fairseq.files import write_json
from agg_fairseq.result import Result

import_user_module(SimpleNamespace(user_dir=str(Path(__file__).resolve().parent)))
from awd_lstm.continuous_cache import CacheOptions, ContinuousCache  # noqa: E402 — the name that fairseq gives it


@torch.no_grad()
def perplexity(
    path: Path, data: Path, split: str, cache: ContinuousCache | None, device: str
) -> float:
    """Perplexity of all targets of a split, which is read from its beginning to its end."""
    model, task = build_model(Checkpoint(path), data)
    model.to(device)
    nll, tokens = 0.0, 0
    for batch in tqdm(
        task.eval_lm_dataloader(task.load_dataset(split)), desc=str(path), disable=None, leave=False
    ):
        net_input = {
            **batch["net_input"],
            "src_tokens": batch["net_input"]["src_tokens"].to(device),
        }
        features = model(**net_input, features_only=True)[0][0]  # T x D, of the only stream
        targets = batch["target"][0].to(device)  # T
        log_probs = model.decoder.output_layer(features).float().log_softmax(1)  # T x V
        if cache is not None:
            log_probs = cache.add(features, targets, log_probs)
        nll -= log_probs.gather(1, targets[:, None]).double().sum().item()
        tokens += len(targets)
    return math.exp(nll / tokens)


def main(arguments: list[str] | None = None) -> None:
    """Prints a table with a row per checkpoint."""
    theta, weight = CacheOptions._field_defaults.values()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder that fairseq-preprocess wrote"
    )
    parser.add_argument("--split", default="test", help="default: test")
    parser.add_argument(
        "--cache-size", type=int, metavar="N", help="positions of the cache (default: no cache)"
    )
    parser.add_argument(
        "--cache-theta", type=float, default=theta, help=f"θ, its flatness (default: {theta})"
    )
    parser.add_argument(
        "--cache-lambda", type=float, default=weight, help=f"λ, its share (default: {weight})"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--json", metavar="FILE", help="write the numbers, not rounded, to this file"
    )
    options = parser.parse_args(arguments)
    rows, cache = {}, None
    try:
        for path in options.checkpoints:
            if options.cache_size is not None:
                cache = ContinuousCache(
                    CacheOptions(options.cache_size, options.cache_theta, options.cache_lambda)
                )
            total = perplexity(path, options.data, options.split, cache, options.device)
            rows[str(path)] = {"perplexity": {"total": total}}
    except (UserError, ValueError) as error:
        fail(str(error))
    used = (
        None
        if cache is None
        else f"{options.cache_size},theta={options.cache_theta},lambda={options.cache_lambda}"
    )
    result = Result(
        rows, {"perplexity": ["total"]}, {"split": options.split, "state": "carried", "cache": used}
    )
    print(f"{result.table()}\n\n{result.signature}")
    if options.json is not None:
        write_json(options.json, result.json())


if __name__ == "__main__":
    main()
