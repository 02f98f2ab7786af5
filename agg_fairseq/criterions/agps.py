"""`--criterion agps`: adaptive gradient partial scaling (Yu et al. 2021)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from fairseq.dataclass import ChoiceEnum
from torch import Tensor

from ..fairseq_glue.distributed import found_by_any_worker
from ..fairseq_glue.training_counts import training_counts
from ..functional import Gates, agps_gates, tokens_from_rank
from ..functional.agps import VARIANTS
from .base import LikelihoodCriterion, LikelihoodCriterionConfig, register, special_tokens


@dataclass
class AgpsCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion agps`; the defaults are the paper's for WikiText-103."""

    agps_mu1: float = field(
        default=500.0,
        metadata={
            "help": "number of training occurrences from which f1 is 1; should exceed that of every rare token "
            "(the paper's value for WMT14: 1500)"
        },
    )
    agps_mu2: float = field(
        default=20.0, metadata={"help": "number of training occurrences from which f2 is 1, usually < mu1 (WMT14: 400)"}
    )
    agps_rare_rank: int = field(
        default=25000,
        metadata={"help": "frequency rank from which a token is rare; the most frequent one has rank 0 (WMT14: 27000)"},
    )
    agps_variant: ChoiceEnum(VARIANTS) = field(  # type: ignore[valid-type]
        default="eq15",
        metadata={"help": "gates of Eq. 15, or of the appendix's Algorithm 1, whose gate at rare targets is f1 + f2"},
    )


@register("agps", dataclass=AgpsCriterionConfig)
class AgpsCriterion(LikelihoodCriterion):
    """Likelihood with the gradient into rare tokens that are no target of the batch scaled by their training counts.

    "In the batch" means in this micro-batch on any worker: one reduction of V bytes for each.
    """

    name: ClassVar[str] = "agps"
    counts_tokens: ClassVar[bool] = True

    def __init__(self, cfg: AgpsCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        for option in ("agps_mu1", "agps_mu2"):
            if not getattr(cfg, option) > 0:
                raise ValueError(f"--{option.replace('_', '-')}: expected a count above 0, got {getattr(cfg, option)}")
        if not 0 <= cfg.agps_rare_rank < self.vocabulary:
            raise ValueError(
                f"--agps-rare-rank: expected a rank in [0, {self.vocabulary}), the size of the vocabulary, got "
                f"{cfg.agps_rare_rank}; the paper's 25,000 of the 267,735 words of WikiText-103 are in proportion "
                f"--agps-rare-rank {round(25_000 / 267_735 * self.vocabulary)}, and its 27,000 of the 40,624 sub-words "
                f"of WMT14 {round(27_000 / 40_624 * self.vocabulary)}"
            )
        self.task = task
        self.register_buffer("counts", torch.zeros(self.vocabulary, dtype=torch.int64), persistent=False)
        self.register_buffer("rare", torch.zeros(self.vocabulary, dtype=torch.bool), persistent=False)

    def on_train_iterator(self, iterator: Any) -> None:
        """Counts the training split, once."""
        if self.train_iterator is None:
            folder = None if self.cfg.no_save else self.cfg.save_dir
            self.counts = training_counts(self.task, self.cfg.train_subset, folder)
            special = special_tokens(self.task.target_dictionary)
            self.rare = tokens_from_rank(self.counts, self.cfg.agps_rare_rank, special)
        super().on_train_iterator(iterator)

    def gates(self, target: Tensor) -> Gates:
        """f1 and f2 on the rare tokens that no worker has as a target."""
        present = torch.zeros_like(self.counts, dtype=torch.uint8)
        if not self.is_dummy:
            present.index_fill_(0, target.flatten(), 1)
        present = found_by_any_worker(present).bool()
        return agps_gates(
            self.counts,
            present,
            self.rare,
            mu1=self.cfg.agps_mu1,
            mu2=self.cfg.agps_mu2,
            variant=str(self.cfg.agps_variant),
        )
