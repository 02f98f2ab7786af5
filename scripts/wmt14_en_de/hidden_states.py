"""Prints what the papers say of hidden states h and output embeddings w, at target positions of the
validation split.

    python scripts/wmt14_en_de/hidden_states.py DATA MODEL …

- **w·h** of rare w, its mean, and how often it is below 0: Yu et al. (2021), section 3, "for
  almost" all h. Frequent ones are there to compare.
- **margin**: the largest m for which there is a direction v, with entries between -1 and 1, such
  that v·h ≤ -m for all h. Above 0, the convex hull of h does not contain 0 (Gao et al. 2019,
  Theorem 2, Appendix C).
- **types below 1e-4**: those that occur, of one language (Gao et al. 2019, section 3.2: above 90%).
"""

import sys

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from agg_fairseq.checkpoints import EmbeddingSource, open_models
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from agg_fairseq.result import format_table

COLUMNS = ("", "rare w·h < 0 (%)", "mean rare w·h", "mean frequent w·h", "margin")


@torch.no_grad()
def hidden_states(checkpoint: EmbeddingSource, data: str) -> Tensor:
    """h (N, D) of target positions, evenly taken from the validation split: 16 D or more, or all."""
    model, task = build_model(checkpoint, data)
    task.load_dataset("valid")
    states = []
    for sample in task.get_batch_iterator(task.dataset("valid"), max_tokens=2048).next_epoch_itr():
        features = model.extract_features(**sample["net_input"])[0]
        states.append(features[sample["target"] != task.target_dictionary.pad()])
    whole = torch.cat(states)
    return whole[:: max(1, len(whole) // (16 * whole.size(1)))]


def margin(states: Tensor) -> float:
    """The largest m such that a v in [-1, 1]^D has v·h ≤ -m for all h: 0 if only v = 0 has."""
    positions, size = states.shape
    found = linprog(
        np.append(np.zeros(size), -1),
        np.hstack([states.double().numpy(), np.ones((positions, 1))]),
        np.zeros(positions),
        bounds=[(-1, 1)] * size + [(0, None)],
    )
    return -float(found.fun)


def main(data: str, paths: list[str]) -> None:
    """Prints the table."""
    models = open_models(paths)
    vocabulary = load_vocabulary(models, data)
    groups = vocabulary.groups("types")
    lines = []
    for name, model in models.items():
        states, weight = hidden_states(model, data), model.output_embedding.weight
        rare, frequent = (states @ weight[groups.members(k)].T for k in ("rare", "frequent"))
        negative = 100 * (rare < 0).float().mean()
        numbers = (negative, rare.mean(), frequent.mean(), margin(states))
        lines.append([name, *(f"{number:.3g}" for number in numbers)])
    print(format_table(COLUMNS, lines))
    counts = vocabulary.counts
    shares = counts[counts > 0] / counts.sum()
    print(f"Types below 1e-4: {(shares < 1e-4).float().mean():.0%}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
