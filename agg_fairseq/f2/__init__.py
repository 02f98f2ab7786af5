"""F²-Softmax (Choi et al. 2020): the factorized output layer, in plain PyTorch.

The functions and the module that this file exports need no fairseq, and raise ValueError for arguments out of range.
`fairseq_decoder` is the decoder of the architectures that `models/transformer_f2.py` registers, `conversion` makes such
a model of an ordinary one, and `transformers_head` is the layer for models of Hugging Face transformers.
"""

from .cross_entropy import FactorizedOutput as FactorizedOutput
from .cross_entropy import factorized_cross_entropy as factorized_cross_entropy
from .cross_entropy import joint_log_prob as joint_log_prob
from .decoupled_decoding import choose_class as choose_class
from .decoupled_decoding import decoupled_log_prob as decoupled_log_prob
from .factorized_softmax import FactorizedSoftmax as FactorizedSoftmax
from .frequency_classes import equal_frequency as equal_frequency
from .frequency_classes import equal_token as equal_token
from .frequency_classes import mefmax as mefmax
from .token_classes import TokenClasses as TokenClasses
