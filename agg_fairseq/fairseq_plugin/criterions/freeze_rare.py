"""`--criterion freeze_rare`: the freezing study of Yu et al. (2022), Sec. 3, and (2021), Sec.
2.2."""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from ...data.binarized import excluded_tokens
from ...errors import fail
from ...functional import freezing_gates, rarest
from ...functional.gates import FREEZING_PARTS, check_open_interval
from ...gating import FixedGating
from .. import option
from ..output_layer import float32_copies, output_layer
from .base import GatedCriterion, GatedCriterionConfig

logger = logging.getLogger(__name__)

ALL_PARTS = "all"


@dataclass
class FreezeRareCriterionConfig(GatedCriterionConfig):
    """Options of `--criterion freeze_rare`."""

    freeze_parts: ChoiceEnum([ALL_PARTS, *FREEZING_PARTS]) = option(  # type: ignore[valid-type]
        ALL_PARTS,
        "all: the embeddings of rare tokens keep their initial values (Table 1); b, c, bc: the "
        "parts of their gradient (Eq. 4) that come from targets that are not rare, from other "
        "rare targets, or both, are set to zero (Table 2)",
    )
    freeze_fraction: float = option(
        0.2, "the fraction of the tokens that occur, by training frequency, that is rare"
    )
    freeze_below: Optional[float] = option(
        None,
        "instead of --freeze-fraction: a token is rare if its share of the target tokens of the "
        "training split is below this number, in (0, 1); Yu et al. (2021) use 1e-6",
    )
    freeze_until: int = option(0, "freeze only during this many updates (Fig. 2); 0: to the end")


@register_criterion("freeze_rare", dataclass=FreezeRareCriterionConfig)
class FreezeRareCriterion(GatedCriterion):
    """Likelihood that does not train the output embeddings of rare tokens, or not with all of their
    gradient.

    With `all`, such a row stays the same bit by bit, also over a resume: neither a gradient (also
    that of a tied input side), nor weight decay, nor momentum moves it.
    """

    counts_tokens: ClassVar[bool] = True
    gating: FixedGating

    def __init__(self, cfg: FreezeRareCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        share = cfg.freeze_fraction if cfg.freeze_below is None else cfg.freeze_below
        check_open_interval("--freeze-fraction or --freeze-below", share)
        self.freezes_rows = str(cfg.freeze_parts) == ALL_PARTS
        self.register_buffer(
            "rare", torch.zeros(len(task.target_dictionary), dtype=torch.bool), persistent=False
        )
        self._is_frozen = False  # in this update
        # weight, rows, their values, hook
        self._frozen: tuple[Tensor, Tensor, Tensor, Any] | None = None

    def make_gating(self, **options: Any) -> FixedGating:
        return FixedGating(**options)

    def on_training_data(self, epoch: int) -> None:
        counts, excluded = self.count_targets(), excluded_tokens(self.task.target_dictionary)
        if self.cfg.freeze_below is None:
            rare = rarest(counts, self.cfg.freeze_fraction, excluded)
        else:
            rare = (counts.double() < self.cfg.freeze_below * counts.sum()) & ~excluded
        if not rare.any():
            fail(
                f"--criterion freeze_rare: found no rare token among {int(counts.sum()):,} "
                "targets; raise the share"
            )
        logger.info(f"freeze_rare: {int(rare.sum()):,} of {len(counts):,} tokens are rare")
        self.set_rare(rare)

    def set_rare(self, rare: Tensor) -> None:
        """Chooses the tokens (V,) that are frozen, or that lack parts of their gradient."""
        self.rare = rare
        if not self.freezes_rows:
            self.gating.set_gates(freezing_gates(rare, str(self.cfg.freeze_parts)))

    def start_update(self, update_num: int) -> None:
        """Releases the rows, or the parts of their gradient, after --freeze-until."""
        super().start_update(update_num)
        self._is_frozen = self.cfg.freeze_until <= 0 or update_num < self.cfg.freeze_until
        if self._is_frozen:
            return
        self.gating.set_gates(None)
        if self._frozen is not None:
            self._frozen[-1].remove()
            self._frozen = None

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Freezes the rows before their first step, with a dummy batch too: with a gradient of zero
        they build up no momentum, and do not enter the norm for gradient clipping."""
        if self.training and self.freezes_rows and self._is_frozen and self._frozen is None:
            weight = output_layer(model).weight
            if not isinstance(weight, nn.Parameter) or not weight.requires_grad:
                self.refuse(model, "whose output embedding is computed or does not train")
            rows = self.rare.to(weight.device).nonzero().squeeze(1)
            hook = weight.register_hook(lambda gradient: gradient.index_fill(0, rows, 0.0))
            self._frozen = weight, rows, weight.detach()[rows], hook
        return super().forward(model, sample, reduce)

    @torch.no_grad()
    def on_weights_changed(self, optimizer: Any, model: Any) -> None:
        """Puts the rows back, which weight decay moves, also in float32 copies."""
        if self._frozen is not None:
            weight, rows, values, _ = self._frozen
            for matrix in (weight, *float32_copies(optimizer, weight)):
                matrix[rows] = values.to(matrix.dtype)
