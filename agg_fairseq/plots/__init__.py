"""The papers' pictures, as functions that return a matplotlib Figure.

Pictures are drawn from checkpoints, from logs of fairseq-train, and from Results of `agg_fairseq.evaluation`.

from agg_fairseq.checkpoints import open_models
from agg_fairseq.plots import projection

runs = open_models(["runs/mle/checkpoint_best.pt", "runs/agg/checkpoint_best.pt"])
figure = projection(runs, "data-bin/wikitext-2")
figure.savefig("projection.png")
"""

from .embeddings import projection as projection
from .embeddings import similarity as similarity
from .embeddings import singular_values as singular_values
from .embeddings import under_trained as under_trained
from .evaluations import alpha_sweep as alpha_sweep
from .evaluations import class_sweep as class_sweep
from .evaluations import token_shares as token_shares
from .over_updates import inner_products_over_updates as inner_products_over_updates
from .over_updates import isotropy_over_updates as isotropy_over_updates
from .over_updates import learning_curves as learning_curves
from .over_updates import rare_tokens as rare_tokens
from .style import save as save
from .tokens import frequencies as frequencies
