"""`--criterion freeze_rare`: the freezing study of Yu et al. (2022), Sec. 3, and (2021), Sec. 2.2."""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from torch import Tensor

from ..data.binarized import training_counts
from ..errors import fail
from ..fairseq_glue.dictionaries import special_tokens
from ..fairseq_glue.output_layer import averages, float32_copies
from ..fairseq_glue.registries import option
from ..functional import Gates, freezing_gates, tokens_from_rank
from ..functional.checks import check_open_interval
from ..functional.gates import PARTS
from ..objective import Objective
from .base import LikelihoodCriterion, LikelihoodCriterionConfig, register
from .options import check_at_least

logger = logging.getLogger(__name__)

ALL = "all"
DEFAULT_FRACTION = 0.2


@dataclass
class FreezeRareCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion freeze_rare`."""

    freeze_parts: ChoiceEnum([ALL, *PARTS]) = option(  # type: ignore[valid-type]
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


class FreezingObjective(Objective):
    """Likelihood with parts of the gradient into rare tokens set to zero.

    Args:
        vocabulary: V.
        parts: as of `functional.freezing_gates`; "all" sets no gates.
        until: number of updates in which parts are frozen; 0: all.
        **options: as of `Objective`.
    """

    rare: Tensor  # (V,) bool, R, to be set before training

    def __init__(self, vocabulary: int, *, parts: str, until: int, **options: Any) -> None:
        super().__init__(vocabulary, **options)
        self.parts, self.until, self.is_frozen = parts, until, False
        self.register_buffer("rare", torch.zeros(vocabulary, dtype=torch.bool), persistent=False)

    def begin_update(self, number: int) -> None:
        """See `Objective`; decides whether anything is frozen in this update."""
        super().begin_update(number)
        self.is_frozen = not self.until or number < self.until

    def gates(self, target: Tensor | None) -> Gates | None:
        """Closed gates for the parts that are frozen."""
        return freezing_gates(self.rare, self.parts) if self.is_frozen and self.parts != ALL else None


@register("freeze_rare", dataclass=FreezeRareCriterionConfig)
class FreezeRareCriterion(LikelihoodCriterion):
    """Likelihood that does not train the output embeddings of rare tokens, or not with all of their gradient.

    With `all`, neither a gradient (also that of the input side, where the embeddings are tied), nor weight decay, nor
    momentum moves such a row: it stays the same bit by bit, also over a resume.
    """

    counts_tokens: ClassVar[bool] = True

    objective: FreezingObjective

    def __init__(self, cfg: FreezeRareCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        self.freezes_rows = str(cfg.freeze_parts) == ALL
        check_at_least(0, cfg, "freeze_until", "a number of updates or 0 (to the end)")
        if cfg.center_output and self.freezes_rows:
            raise ValueError(
                "found --center-output, which moves all rows of the output embedding, and --freeze-parts all, which "
                "holds some of them; drop --center-output, or freeze parts of the gradient (b, c, bc)"
            )
        self.changes_rows = self.changes_rows or self.freezes_rows
        # A checkpoint of version 0.2.0 has the default of --freeze-fraction beside --freeze-below.
        self.below, self.fraction = cfg.freeze_below, cfg.freeze_fraction
        if self.below is None:
            self.fraction = DEFAULT_FRACTION if self.fraction is None else self.fraction
            check_open_interval("--freeze-fraction", self.fraction)
        else:
            check_open_interval("--freeze-below", self.below)
            if self.fraction not in (None, DEFAULT_FRACTION):
                raise ValueError(
                    f"found both --freeze-below {self.below} and --freeze-fraction {self.fraction}; drop one of them"
                )
        self._frozen: tuple[Tensor, Tensor, Tensor, Any] | None = None  # weight, rows, their values, hook

    def make_objective(self, **options: Any) -> FreezingObjective:
        """See `LikelihoodCriterion`."""
        return FreezingObjective(parts=str(self.cfg.freeze_parts), until=self.cfg.freeze_until, **options)

    def on_train_iterator(self, iterator: Any) -> None:
        """Counts the training split, once."""
        if self.train_iterator is None:
            counts = training_counts(self.task, self.cfg.train_subset)
            self.objective.rare = rare = self._rare(counts, special_tokens(self.task.target_dictionary))
            logger.info(f"freeze_rare: {int(rare.sum()):,} of {len(rare):,} tokens are rare")
        super().on_train_iterator(iterator)

    def _rare(self, counts: Tensor, special: Tensor) -> Tensor:
        """(V,) bool, the rare tokens by training counts (V,); `special` (V,) bool are none."""
        if self.below is None:
            tokens = len(counts) - int((special & (counts == 0)).sum())
            rank = min(round((1 - self.fraction) * tokens), len(counts) - 1)
            return tokens_from_rank(counts, rank, special)
        rare = (counts.double() < self.below * counts.sum()) & ~special
        if not rare.any():
            fail(
                f"--freeze-below: found no token whose share is below {self.below} of the {int(counts.sum()):,} target "
                "tokens; expected some to freeze; raise it, or use --freeze-fraction"
            )
        return rare

    def begin_update(self, update_num: int) -> None:
        """Releases the rows after the last update in which they are frozen."""
        super().begin_update(update_num)
        if self._frozen is not None and not self.objective.is_frozen:
            self._frozen[-1].remove()
            self._frozen = None

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """See `LikelihoodCriterion`. Freezes the rows before their first step, with a dummy batch too.

        Their gradient is zero, so that they build up no momentum and do not enter the norm for gradient clipping.
        """
        if self.training and self.freezes_rows and self.objective.is_frozen and self._frozen is None:
            weight, rows = (
                self.output_layer(model, sample["net_input"]).weight,
                self.objective.rare.nonzero().squeeze(1),
            )
            hook = weight.register_hook(lambda gradient: gradient.index_fill(0, rows, 0.0))
            self._frozen = weight, rows, weight.detach()[rows], hook
        return super().forward(model, sample, reduce)

    @torch.no_grad()
    def on_weights_changed(self, optimizer: Any, model: Any) -> None:
        """Puts the rows back, which weight decay moves, also in the float32 copies and the average of an optimizer."""
        super().on_weights_changed(optimizer, model)
        if self._frozen is not None:
            weight, rows, values, _ = self._frozen
            for matrix in (weight, *float32_copies(optimizer, weight), *averages(optimizer, weight)):
                matrix[rows] = values.to(matrix.dtype)
