"""The papers' measures as pure functions of tensors and of texts. Nothing here needs fairseq.

Where a function checks the range of an argument, it raises ValueError.
"""

from .align_sim import TEMPERATURE as TEMPERATURE
from .align_sim import LinkCounts as LinkCounts
from .align_sim import align_sim as align_sim
from .align_sim import group_means as group_means
from .align_sim import orthogonal_align_sim as orthogonal_align_sim
from .bleu import Bleu as Bleu
from .bleu import corpus_bleu as corpus_bleu
from .bleu import split_compounds as split_compounds
from .bleu import tokenized_bleu as tokenized_bleu
from .diversity import distinct as distinct
from .diversity import repetition as repetition
from .diversity import self_bleu as self_bleu
from .diversity import unique_tokens as unique_tokens
from .groups import FrequencyGroups as FrequencyGroups
from .groups import frequency_groups as frequency_groups
from .groups import frequency_mass_groups as frequency_mass_groups
from .groups import group_shares as group_shares
from .groups import relative_frequency_groups as relative_frequency_groups
from .isotropy import Geometry as Geometry
from .isotropy import geometry as geometry
from .isotropy import isoscore as isoscore
from .isotropy import isotropy as isotropy
from .isotropy import mean_cosine as mean_cosine
from .isotropy import mean_cosine_between as mean_cosine_between
from .isotropy import mean_inner_product as mean_inner_product
from .isotropy import mean_row as mean_row
from .isotropy import principal_projection as principal_projection
from .isotropy import singular_values as singular_values
from .neighbors import nearest_neighbors as nearest_neighbors
from .next_token import NextTokenStatistics as NextTokenStatistics
from .ngrams import kl_divergence as kl_divergence
from .ngrams import ms_jaccard as ms_jaccard
from .under_trained import unused_distance as unused_distance
from .word_similarity import WordSimilarity as WordSimilarity
from .word_similarity import word_similarity as word_similarity
from .word_similarity import word_vectors as word_vectors
