"""The papers' pictures, as functions that return a matplotlib Figure, such as
`projection(open_models(["runs/mle", "runs/agg"]), "data-bin/wikitext-2")`."""

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
