"""The evaluations behind the commands, as functions: checkpoints, data and options in, a `Result` out.

docs/evaluation.md has examples.
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
