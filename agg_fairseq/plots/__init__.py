"""The papers' pictures, as functions that return a matplotlib Figure.

from agg_fairseq.checkpoints import open_models
from agg_fairseq.plots import projection

runs = open_models(["runs/mle/checkpoint_best.pt", "runs/agg/checkpoint_best.pt"])
figure = projection(runs, "data-bin/wikitext-2")
figure.savefig("projection.png")
"""

from .embeddings import projection, similarity, singular_values
from .evaluations import alpha_sweep, class_sweep, frequencies, token_shares
from .over_updates import (
    inner_products_over_updates,
    isotropy_over_updates,
    learning_curves,
    rare_tokens,
)
from .style import save

__all__ = [
    "projection", "similarity", "singular_values",
    "learning_curves", "rare_tokens", "isotropy_over_updates", "inner_products_over_updates",
    "token_shares", "alpha_sweep", "class_sweep", "frequencies", "save",
]  # fmt: skip
