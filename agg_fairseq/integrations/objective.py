"""A gated training objective over the updates of any training loop: the loss, and the token counts behind its gates."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..functional import (
    Gates,
    Unlikelihood,
    agg_gates,
    agps_gates,
    cosine_regularizer,
    gated_cross_entropy,
    isoscore_penalty,
    mean_row_penalty,
    previous_tokens,
    rare_tokens,
    sliced_dispersion,
    tokens_from_rank,
)
from ..modules import TokenCounter

logger = logging.getLogger(__name__)

METHODS = ("agg", "agps", "mle")
IGNORED = -100
"""Label of the positions without a target, in transformers as in PyTorch."""
DEFAULT_ALPHA = 0.03
DEFAULT_WINDOW = 1000
AGPS_DEFAULTS = {"mu1": 500.0, "mu2": 20.0, "variant": "eq15"}


class GatedObjective:
    """Likelihood whose gradient into the output embedding is gated, with optional penalties.

    One update of a training loop is any number of calls of `loss`, one for each micro-batch, and then one call of
    `end_update`. The gates of AGG are computed from the updates before it, so that they are the same for each
    micro-batch and each worker; the first update, with no counts yet, is not gated.

    With several workers (an initialized `torch.distributed`), the counts are summed over the default process group once
    per update; AGPS reduces V bytes once per micro-batch. All workers must make the same calls.

    Args:
        vocabulary: V, the number of rows of the output embedding.
        method: "agg" (Yu et al. 2022), "agps" (Yu et al. 2021), or "mle": plain likelihood by the same operation.
        never_rare: tokens that are never treated as rare, e.g. `tokenizer.all_special_ids`. Add the tokens that cannot
            be a target at all, such as rows that only pad the vocabulary.
        agg_alpha: a token is rare if it appears fewer than this many times per update, in (0, 1). Default: 0.03.
        agg_rare_fraction: instead of `agg_alpha`, the fraction of the vocabulary that is rare, in (0, 1).
        agg_window: K >= 1, the number of updates over which appearances are counted. Default: 1,000.
        agg_gates: "both" (default), "g1", "g2", "faded" or "continuous", see `functional.agg_gates`.
        agps_counts: (V,) int64, occurrences of each token as a target in the training set, see `label_counts`.
        agps_rare_rank: frequency rank from which a token is rare; the most frequent token has rank 0.
        agps_mu1: training occurrences from which f1 is 1 (default: 500).
        agps_mu2: training occurrences from which f2 is 1 (default: 20).
        agps_variant: "eq15" (default) or "algorithm1", see `functional.agps_gates`.
        label_smoothing: epsilon in [0, 1), as in fairseq: ε/(V−1) for each token but the target.
        ul_alpha: weight of the unlikelihood of tokens that were targets earlier in the same row of the batch (Welleck
            et al. 2020). The first token of a row is no target, and so is no candidate.
        z_loss: weight of the mean squared logsumexp of the logits (Chowdhery et al. 2022).
        adv_epsilon: adversarial training (Wang et al. 2019): the logit of the target is lowered by this share of the
            product of the norms of its embedding and of the features.
        cosreg_gamma: weight of the mean cosine between output embeddings (Gao et al. 2019). It counts once per update,
            as the next three do.
        mu_loss: weight of the squared length of the mean output embedding (Stollenwerk et al. 2026). To subtract the
            mean itself, call `functional.center_rows_(weight)` after each step of the optimizer.
        dispersion_gamma: weight of the sliced angular dispersion of the output embeddings (Tokarchuk et al. 2025).
        isoscore_gamma: weight of 1 − IsoScore of the output embeddings, see `functional.isoscore_penalty`.

    Raises:
        ValueError: an option is out of its range, missing, or belongs to another method.

    Example:
        >>> objective = GatedObjective(vocabulary=50, agg_rare_fraction=0.2)
        >>> features, weight = torch.randn(2, 3, 8), torch.randn(50, 8, requires_grad=True)
        >>> target = torch.randint(50, (2, 3))
        >>> loss = objective.loss(features, weight, target) / target.numel()
        >>> loss.backward(); objective.end_update()
        >>> objective.counter.updates
        1
    """

    def __init__(
        self,
        vocabulary: int,
        method: str = "agg",
        *,
        never_rare: Iterable[int] = (),
        agg_alpha: float | None = None,
        agg_rare_fraction: float | None = None,
        agg_window: int | None = None,
        agg_gates: str | None = None,
        agps_counts: Tensor | None = None,
        agps_rare_rank: int | None = None,
        agps_mu1: float | None = None,
        agps_mu2: float | None = None,
        agps_variant: str | None = None,
        label_smoothing: float = 0.0,
        ul_alpha: float = 0.0,
        z_loss: float = 0.0,
        adv_epsilon: float = 0.0,
        cosreg_gamma: float = 0.0,
        mu_loss: float = 0.0,
        dispersion_gamma: float = 0.0,
        isoscore_gamma: float = 0.0,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"expected method to be one of {', '.join(METHODS)}, got {method!r}")
        if agg_alpha is not None and agg_rare_fraction is not None:
            raise ValueError("expected agg_alpha or agg_rare_fraction, got both; drop one of them")
        options = {
            "agg": (agg_alpha, agg_rare_fraction, agg_window, agg_gates),
            "agps": (agps_counts, agps_rare_rank, agps_mu1, agps_mu2, agps_variant),
        }
        for owner, values in options.items():
            if owner != method and any(value is not None for value in values):
                raise ValueError(f"found options that begin with {owner}_, but method is {method!r}; drop one of them")
        self.terms = {  # the weight of each by its name
            "ul_alpha": ul_alpha,
            "z_loss": z_loss,
            "adv_epsilon": adv_epsilon,
            "cosreg_gamma": cosreg_gamma,
            "mu_loss": mu_loss,
            "dispersion_gamma": dispersion_gamma,
            "isoscore_gamma": isoscore_gamma,
        }
        for name, value in self.terms.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"expected {name} of at least 0, got {value}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"expected label_smoothing in [0, 1), got {label_smoothing}")

        self.vocabulary = vocabulary
        self.method = method
        self.label_smoothing = label_smoothing
        self.never_rare = torch.zeros(vocabulary, dtype=torch.bool)
        for token in never_rare:
            if not 0 <= token < vocabulary:
                raise ValueError(f"expected never_rare tokens in [0, {vocabulary}), got {token}")
            self.never_rare[token] = True
        self.updates = 0  # that have ended
        self.micro_batches = 0  # of the update under way
        self.counter: TokenCounter | None = None
        self.rare: Tensor | None = None  # (V,) bool, the rare tokens of the newest update that was gated
        self._gates: Gates | None = None
        self._gates_are_current = False
        self._warned = False
        if method == "agg":
            by_rate = {"alpha": DEFAULT_ALPHA if agg_alpha is None else agg_alpha}
            self._threshold = by_rate if agg_rare_fraction is None else {"rare_fraction": agg_rare_fraction}
            self._which = "both" if agg_gates is None else agg_gates
            self._agg_gates(torch.zeros(vocabulary, dtype=torch.int64), 1)  # raises where an option is out of its range
            window = DEFAULT_WINDOW if agg_window is None else agg_window
            self.counter = TokenCounter(vocabulary, window)
        elif method == "agps":
            if agps_counts is None or agps_rare_rank is None:
                raise ValueError("method 'agps' needs agps_counts and agps_rare_rank")
            if agps_counts.shape != (vocabulary,):
                raise ValueError(f"expected agps_counts of shape ({vocabulary},), got {tuple(agps_counts.shape)}")
            self.counts = agps_counts.long()
            self.rare = tokens_from_rank(self.counts, agps_rare_rank, self.never_rare)
            given = {"mu1": agps_mu1, "mu2": agps_mu2, "variant": agps_variant}
            self._agps = AGPS_DEFAULTS | {name: value for name, value in given.items() if value is not None}
            agps_gates(self.counts, self.rare, self.rare, **self._agps)  # raises, as above

    def loss(self, features: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None = None) -> Tensor:
        """The loss of a micro-batch, summed over its targets; counts the targets for the gates of later updates.

        Under `torch.no_grad`, as in validation, nothing is counted, the loss is without the margin of `adv_epsilon`,
        and `dispersion_gamma` uses the same great circle after every update.

        Args:
            features: (B, T, D), the input of the output layer.
            weight: (V, D), the output embedding.
            target: (B, T) int64 in [0, V), or −100 where there is no target.
            bias: (V,), of the output layer; its gradient is gated like that of `weight`.

        Returns:
            Scalar in nats. Divide it by the number of targets of the whole update.

        Raises:
            ValueError, TypeError: as `functional.gated_cross_entropy`.
        """
        is_training = torch.is_grad_enabled()
        gates = self._current_gates(target) if is_training else None
        terms = self.terms
        alpha = terms["ul_alpha"]
        total = gated_cross_entropy(
            features,
            weight,
            target,
            bias=bias,
            gates=gates,
            unlikelihood=Unlikelihood(alpha, previous_tokens(target, IGNORED)) if alpha else None,
            z_loss=terms["z_loss"],
            adversarial=terms["adv_epsilon"] if is_training else 0.0,
            label_smoothing=self.label_smoothing,
            ignore_index=IGNORED,
        ).loss
        # As the sum is divided by the targets of the update, the terms of W are added once per target.
        positions = (target != IGNORED).sum()
        if terms["cosreg_gamma"]:
            total = total + positions * terms["cosreg_gamma"] * cosine_regularizer(weight)
        if terms["mu_loss"]:
            total = total + positions * terms["mu_loss"] * mean_row_penalty(weight)
        if terms["dispersion_gamma"]:  # the same great circle for all micro-batches of an update, and on all workers
            circle = self.updates if is_training else 0
            total = total + positions * terms["dispersion_gamma"] * sliced_dispersion(weight, seed=circle)
        if terms["isoscore_gamma"]:
            total = total + positions * terms["isoscore_gamma"] * isoscore_penalty(weight)
        self.micro_batches += is_training
        if is_training and self.counter is not None:
            self.counter.add(target[target != IGNORED])
        return total

    def _current_gates(self, target: Tensor) -> Gates | None:
        """The gates of a micro-batch with targets (B, T); None is plain likelihood."""
        self.never_rare = self.never_rare.to(target.device)
        if self.method == "mle":
            return None
        if self.method == "agps":
            self.counts, self.rare = self.counts.to(target.device), self.rare.to(target.device)
            present = torch.zeros(self.vocabulary, dtype=torch.uint8, device=target.device)
            present.index_fill_(0, target[target != IGNORED], 1)
            _all_reduce(present, "MAX")
            return agps_gates(self.counts, present.bool(), self.rare, **self._agps)
        self.counter.to(target.device)
        if not self._gates_are_current:
            updates = self.counter.updates
            self._gates = self._agg_gates(self.counter.appearances, updates) if updates else None
            self._gates_are_current = True
            self._warn_if_most_are_rare()
        return self._gates

    def _agg_gates(self, appearances: Tensor, updates: int) -> Gates:
        self.rare = rare_tokens(appearances, updates, never_rare=self.never_rare, **self._threshold)
        return agg_gates(appearances, updates, self.rare, which=self._which, alpha=self._threshold.get("alpha"))

    def end_update(self, skipped: bool = False) -> None:
        """Ends an update, after the step of the optimizer. Every worker must call it equally often.

        Args:
            skipped: the step did not take place, because a gradient overflowed in half precision; the targets of the
                update are then forgotten.
        """
        self.micro_batches = 0
        self.updates += 1
        if self.counter is None:
            return
        self.counter.close(lambda counts: _all_reduce(counts, "SUM"))
        if skipped:
            self.counter.discard()
        else:
            self.counter.commit()
        self._gates_are_current = False

    def discard_update(self) -> None:
        """Forgets the micro-batches of an update that was broken off."""
        self.micro_batches = 0
        if self.counter is not None:
            self.counter.discard()

    def state_dict(self) -> dict[str, Any]:
        """What training needs to go on exactly from here: tensors and numbers only, on the CPU."""
        counter = None if self.counter is None else self.counter.get_extra_state()
        return {"method": self.method, "vocabulary": self.vocabulary, "counter": counter, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned. The state of a method without counts leaves the window empty.

        Raises:
            ValueError: the state is that of another vocabulary, or none that an objective has saved.
        """
        if not isinstance(state, Mapping) or not {"method", "vocabulary", "counter"} <= set(state):
            raise ValueError("GatedObjective: expected a state that it has saved")
        if state["vocabulary"] != self.vocabulary:
            raise ValueError(
                f"GatedObjective: expected a state over {self.vocabulary} tokens, got {state['vocabulary']}"
            )
        self.updates = state.get("updates", 0)  # not in states of earlier versions
        if self.counter is not None and state["counter"] is not None:
            window = self.counter.window
            self.counter.set_extra_state(state["counter"])
            self.counter.resize(window)
            self._gates_are_current = False

    def _warn_if_most_are_rare(self) -> None:
        """Once, when the window is full for the first time: before, most tokens have not had time to appear."""
        if self._warned or self.counter.updates < self.counter.window:
            return
        self._warned = True
        share = int(self.rare.sum()) / self.vocabulary
        if share > 0.5 and self._which != "faded":  # those hold back only the rarest of the group
            logger.warning(
                f"{share:.0%} of the vocabulary is rare, which costs the other tokens perplexity; lower agg_alpha, or "
                "set agg_rare_fraction (0.05 to 0.3)"
            )


def label_counts(dataset: Iterable[Mapping[str, Any]], vocabulary: int) -> Tensor:
    """How often each token is a target in a dataset of a causal language model, for `agps_counts`.

    Args:
        dataset: examples with `labels` or else `input_ids`, a sequence of tokens each. The first token of a sequence is
            no target, and neither is −100.
        vocabulary: V.

    Returns:
        (V,) int64.

    Raises:
        ValueError: a token outside [0, V).

    Example:
        >>> label_counts([{"input_ids": [1, 2, 2]}, {"labels": [0, -100, 3]}], vocabulary=4).tolist()
        [0, 0, 2, 1]
    """
    counts = torch.zeros(vocabulary, dtype=torch.int64)
    for example in dataset:
        tokens = torch.as_tensor(example["labels"] if "labels" in example else example["input_ids"])[1:]
        tokens = tokens[tokens != IGNORED]
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
            raise ValueError(f"label_counts: expected tokens in [0, {vocabulary}), got {int(tokens.max())}")
        counts += torch.bincount(tokens, minlength=vocabulary)
    return counts


def _all_reduce(tensor: Tensor, operation: str) -> None:
    """Sums, or takes the largest, over the workers, in place."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.all_reduce(tensor, op=getattr(distributed.ReduceOp, operation))
