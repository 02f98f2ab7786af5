"""The evaluations behind the commands, as functions: checkpoints, data and options in, a `Result` out.

docs/evaluation.md has examples.
"""

from ..result import Result as Result
from .align_sim import align_sim as align_sim
from .bleu import bleu as bleu
from .cache import Cache as Cache
from .calibration import calibrate as calibrate
from .generate_texts import generate_texts as generate_texts
from .group_shares import group_shares as group_shares
from .isotropy import isotropy as isotropy
from .neighbors import neighbors as neighbors
from .perplexity import perplexity as perplexity
from .push_pull import push_pull as push_pull
from .scoring import BinarizedText as BinarizedText
from .scoring import PlainText as PlainText
from .text_metrics import text_metrics as text_metrics
from .under_trained import under_trained as under_trained
from .word_similarity import word_similarity as word_similarity
