"""The evaluations behind the commands, as functions: checkpoints, data and options in, a `Result` out.

from agg_fairseq.checkpoints import open_checkpoints
from agg_fairseq.evaluation import perplexity

runs = open_checkpoints(["runs/mle/checkpoint_best.pt", "runs/agg/checkpoint_best.pt"])
result = perplexity(runs, "data-bin/wikitext-2")
result["agg"]["PPL rare"], result.table(), result.json()
"""

from ..result import Column, Result
from .align_sim import align_sim
from .bleu import bleu
from .cache import Cache
from .generate_texts import generate_texts
from .group_shares import group_shares
from .isotropy import isotropy
from .neighbors import neighbors
from .perplexity import perplexity
from .text_metrics import text_metrics
from .under_trained import under_trained
from .word_similarity import word_similarity
