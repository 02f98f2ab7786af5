"""F²-Softmax (Choi et al. 2020): the factorized output layer, in plain PyTorch.

The functions and the module that this file exports need no fairseq, and raise ValueError for
arguments out of range. `models/transformer_f2.py` registers the architectures for fairseq.
"""

from .cross_entropy import FactorizedOutput, factorized_cross_entropy, joint_log_prob
from .decoupled_decoding import choose_class, decoupled_log_prob
from .factorized_softmax import FactorizedSoftmax
from .frequency_classes import equal_frequency, equal_token, mefmax
from .token_classes import TokenClasses

__all__ = [
    "mefmax", "equal_frequency", "equal_token", "FactorizedSoftmax", "TokenClasses",
    "factorized_cross_entropy", "FactorizedOutput", "joint_log_prob", "decoupled_log_prob", "choose_class",
]  # fmt: skip
