"""`--criterion freeze_rare`: the freezing study of Yu et al. (2022), Sec. 3, and (2021), Sec. 2.2."""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from torch import Tensor

from ..data.binarized import in_no_group, training_counts
from ..errors import fail
from ..fairseq_glue import option
from ..fairseq_glue.dictionaries import has_joined_dictionary
from ..fairseq_glue.output_layer import float32_copies, output_layer
from ..functional import freezing_gates, rarest
from ..functional.gates import FREEZING_PARTS
from ..functional.rare import check_open_interval
from .base import LikelihoodCriterion, LikelihoodCriterionConfig

logger = logging.getLogger(__name__)

ALL = "all"
DEFAULT_FRACTION = 0.2


@dataclass
class FreezeRareCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion freeze_rare`."""

    freeze_parts: ChoiceEnum([ALL, *FREEZING_PARTS]) = option(  # type: ignore[valid-type]
        ALL,
        "all: the embeddings of rare tokens keep their initial values (Table 1); b, c, bc: the parts of their "
        "gradient (Eq. 4) that come from targets that are not rare, from other rare targets, or both, are set to zero "
        "(Table 2)",
    )
    freeze_fraction: Optional[float] = option(  # noqa: UP045 — fairseq reads the annotation
        None,
        f"the fraction of the vocabulary, by training frequency, that is rare, in (0, 1); default: {DEFAULT_FRACTION}",
    )
    freeze_below: Optional[float] = option(  # noqa: UP045 — fairseq reads the annotation
        None,
        "instead of --freeze-fraction: a token is rare if its share of the target tokens of the training split is "
        "below this number, in (0, 1); Yu et al. (2021) use 1e-6",
    )
    freeze_until: int = option(0, "freeze only during this many updates (Fig. 2); 0: to the end")


@register_criterion("freeze_rare", dataclass=FreezeRareCriterionConfig)
class FreezeRareCriterion(LikelihoodCriterion):
    """Likelihood that does not train the output embeddings of rare tokens, or not with all of their gradient.

    With `all`, neither a gradient (also that of the input side, where the embeddings are tied), nor weight decay, nor
    momentum moves such a row: it stays the same bit by bit, also over a resume.
    """

    counts_tokens: ClassVar[bool] = True

    def __init__(self, cfg: FreezeRareCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        self.fraction = DEFAULT_FRACTION if cfg.freeze_fraction is None else cfg.freeze_fraction
        check_open_interval("--freeze-fraction", self.fraction)
        if cfg.freeze_below is not None:
            check_open_interval("--freeze-below", cfg.freeze_below)
            if cfg.freeze_fraction is not None:
                found = f"--freeze-below {cfg.freeze_below} and --freeze-fraction {self.fraction}"
                raise ValueError(f"found both {found}; drop one of them")
        self.freezes_rows = str(cfg.freeze_parts) == ALL
        self.register_buffer("rare", torch.zeros(len(task.target_dictionary), dtype=torch.bool), persistent=False)
        self._is_frozen = False  # in this update
        self._frozen: tuple[Tensor, Tensor, Tensor, Any] | None = None  # weight, rows, their values, hook

    def on_train_iterator(self, iterator: Any) -> None:
        """Counts the training split, once."""
        if self.train_iterator is None:
            counts, is_joined = training_counts(self.task, self.cfg.train_subset), has_joined_dictionary(self.task)
            excluded = in_no_group(self.task.target_dictionary, counts if is_joined else None)
            if self.cfg.freeze_below is not None:
                self.rare = (counts.double() < self.cfg.freeze_below * counts.sum()) & ~excluded
                if not self.rare.any():
                    fail(
                        f"--freeze-below: found no token whose share of the {int(counts.sum()):,} target tokens is "
                        f"below {self.cfg.freeze_below}; raise it, or use --freeze-fraction"
                    )
            else:
                self.rare = rarest(counts, self.fraction, excluded)
            logger.info(f"freeze_rare: {int(self.rare.sum()):,} of {len(counts):,} tokens are rare")
        super().on_train_iterator(iterator)

    def start_update(self, update_num: int) -> None:
        """Freezes the rows, or parts of their gradient, in this update; releases them after the last such update."""
        super().start_update(update_num)
        self._is_frozen = self.cfg.freeze_until <= 0 or update_num < self.cfg.freeze_until
        if not self.freezes_rows:
            closed = freezing_gates(self.rare, str(self.cfg.freeze_parts))
            self.objective.current_gates = closed if self._is_frozen else None
        elif self._frozen is not None and not self._is_frozen:
            self._frozen[-1].remove()
            self._frozen = None

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Freezes the rows before their first step, with a dummy batch too.

        Their gradient is zero, so that they build up no momentum and do not enter the norm for gradient clipping.
        """
        if self.training and self.freezes_rows and self._is_frozen and self._frozen is None:
            weight, rows = output_layer(model).weight, self.rare.nonzero().squeeze(1)
            hook = weight.register_hook(lambda gradient: gradient.index_fill(0, rows, 0.0))
            self._frozen = weight, rows, weight.detach()[rows], hook
        return super().forward(model, sample, reduce)

    @torch.no_grad()
    def on_weights_changed(self, optimizer: Any, model: Any) -> None:
        """Puts the rows back, which weight decay moves, also in the float32 copies of an optimizer."""
        if self._frozen is not None:
            weight, rows, values, _ = self._frozen
            for matrix in (weight, *float32_copies(optimizer, weight)):
                matrix[rows] = values.to(matrix.dtype)
