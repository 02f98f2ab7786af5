"""AWD-LSTM (Merity, Keskar & Socher 2018), the language model of Gao et al. (2019).

`modules`, the optimizer `nt_asgd` and the `continuous_cache` are plain PyTorch. `language_model` and `streams_task`
register the architecture and the task with fairseq.
"""

from .nt_asgd import NTASGD

__all__ = ["NTASGD"]
