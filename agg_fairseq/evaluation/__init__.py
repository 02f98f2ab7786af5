"""The evaluations behind the commands, as functions: checkpoints, data and options in, a `Result` out.

from agg_fairseq.checkpoint import open_checkpoints
from agg_fairseq.evaluation import perplexity

runs = open_checkpoints(["runs/mle/checkpoint_best.pt", "runs/agg/checkpoint_best.pt"])
result = perplexity(runs, "data-bin/wikitext-2")
result["agg"]["PPL rare"], result.table(), result.json()
"""

from .cache import Cache
from .perplexity import perplexity
from .result import Column, Result

__all__ = ["Cache", "Column", "Result", "perplexity"]
