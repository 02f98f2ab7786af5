"""A gated training objective over the updates of any training loop: the loss, and the token counts behind its gates."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..functional import gated_cross_entropy
from ..functional.checks import check_weight
from ..functional.terms import EMBEDDING_TERMS, POSITION_TERMS, TERMS, formed
from ..modules import AggState, AgpsState, TokenCounter

METHODS = ("agg", "agps", "mle")
IGNORED = -100  # label of the positions without a target, in transformers as in PyTorch


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
        agg_gates: "both" (default), "g1", "g2" or "faded", see `functional.agg_gates`.
        agps_counts: (V,) int64, occurrences of each token as a target in the training set, see `label_counts`.
        agps_rare_rank: frequency rank from which a token is rare; the most frequent token has rank 0.
        agps_mu1: training occurrences from which f1 is 1 (default: 500).
        agps_mu2: training occurrences from which f2 is 1 (default: 20).
        agps_variant: "eq15" (default) or "algorithm1", see `functional.agps_gates`.
        label_smoothing: epsilon in [0, 1), as in fairseq: ε/(V−1) for each token but the target.
        **terms: the weights of the terms of `functional.terms`, by their names: `ul_alpha`, `z_loss`, `adv_epsilon`,
            `cosreg_gamma` and `mu_loss`; 0 leaves a term out. For unlikelihood, the tokens of a sequence are those of
            a row of the batch, whose first token is no target, and so no candidate. (To subtract the mean output
            embedding, call `functional.center_rows_(weight)` after each step of the optimizer.)

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
        **terms: float,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"expected method to be one of {', '.join(METHODS)}, got {method!r}")
        options = {
            "agg": {"alpha": agg_alpha, "rare_fraction": agg_rare_fraction, "window": agg_window, "gates": agg_gates},
            "agps": {
                "counts": agps_counts, "rare_rank": agps_rare_rank, "mu1": agps_mu1, "mu2": agps_mu2,
                "variant": agps_variant,
            },
            "mle": {},
        }  # fmt: skip
        given = {owner: {k: v for k, v in values.items() if v is not None} for owner, values in options.items()}
        for owner in METHODS:
            if owner != method and given[owner]:
                raise ValueError(f"found options that begin with {owner}_, but method is {method!r}; drop one of them")
        self.terms = {term.option: 0.0 for term in TERMS}
        for name, value in terms.items():
            if name not in self.terms:
                raise TypeError(f"GatedObjective: found {name}, expected an option or one of {', '.join(self.terms)}")
            self.terms[name] = check_weight(name, value)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"expected label_smoothing in [0, 1), got {label_smoothing}")
        special = torch.zeros(vocabulary, dtype=torch.bool)
        for token in never_rare:
            if not 0 <= token < vocabulary:
                raise ValueError(f"expected never_rare tokens in [0, {vocabulary}), got {token}")
            special[token] = True

        self.vocabulary = vocabulary
        self.method = method
        self.label_smoothing = label_smoothing
        self.micro_batches = 0  # of the update under way
        self.agg: AggState | None = None
        self.agps: AgpsState | None = None
        if method == "agg":
            self.agg = AggState(vocabulary, never_rare=special, ignore_index=IGNORED, **given["agg"])
        elif method == "agps":
            counts = given["agps"].pop("counts", None)
            if counts is None or agps_rare_rank is None:
                raise ValueError("method 'agps' needs agps_counts and agps_rare_rank")
            self.agps = AgpsState(vocabulary, never_rare=special, ignore_index=IGNORED, **given["agps"])
            self.agps.set_counts(counts)

    @property
    def counter(self) -> TokenCounter | None:
        """The token counts of AGG; None of another method."""
        return None if self.agg is None else self.agg.counter

    def loss(
        self,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        scale: float = 1.0,
        softcap: float | None = None,
    ) -> Tensor:
        """The loss of a micro-batch, summed over its targets; counts the targets for the gates of later updates.

        Under `torch.no_grad`, as in validation, nothing is counted, and the loss is without the margin of
        `adv_epsilon`.

        Args:
            features: (B, T, D), the input of the output layer.
            weight: (V, D), the output embedding.
            target: (B, T) int64 in [0, V), or −100 where there is no target.
            bias: (V,), of the output layer; its gradient is gated like that of `weight`.
            scale: s, by which the model multiplies its logits, not 0.
            softcap: c of logits that are bounded by `c tanh(logits / c)`, after the scale; None is none.

        Returns:
            Scalar in nats. Divide it by the number of targets of the whole update.
        """
        is_training, gates = torch.is_grad_enabled(), None
        if is_training and self.agg is not None:
            self.agg.to(target.device)
            if self.micro_batches == 0:
                self.agg.set_gates()
            gates = self.agg.gates
        elif is_training and self.agps is not None:
            gates = self.agps.to(target.device).gates(target, lambda present: _all_reduce(present, "MAX"))
        in_use = formed(POSITION_TERMS, self.terms, training=is_training)
        total = gated_cross_entropy(
            features,
            weight,
            target,
            bias=bias,
            gates=gates,
            label_smoothing=self.label_smoothing,
            scale=scale,
            softcap=softcap,
            ignore_index=IGNORED,
            **{term.argument: term.value(self.terms[term.option], target, IGNORED) for term in in_use},
        ).loss
        # As the sum is divided by the targets of the update, the terms of W are added once per target.
        positions = (target != IGNORED).sum()
        for term in EMBEDDING_TERMS:
            if gamma := self.terms[term.option]:
                total = total + positions * gamma * term.value(weight, None)
        self.micro_batches += is_training
        if is_training and self.counter is not None:
            self.counter.add(target)
        return total

    def end_update(self, skipped: bool = False) -> None:
        """Ends an update, after the step of the optimizer. Every worker must call it equally often.

        `skipped`: the step did not take place, because a gradient overflowed in half precision; the targets of the
        update are then forgotten.
        """
        self.micro_batches = 0
        if self.counter is None:
            return
        self.counter.close(lambda counts: _all_reduce(counts, "SUM"))
        if skipped:
            self.counter.discard()
        else:
            self.counter.commit()

    def discard_update(self) -> None:
        """Forgets the micro-batches of an update that was broken off."""
        self.micro_batches = 0
        if self.counter is not None:
            self.counter.discard()

    def state_dict(self) -> dict[str, Any]:
        """What training needs to go on exactly from here: tensors and numbers only, on the CPU."""
        found = {"counter": None} if self.agg is None else self.agg.checkpoint_state()
        return {"method": self.method, "vocabulary": self.vocabulary, **found}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned, but for the window, which is as the options say.

        The state of a method without counts leaves the window empty. ValueError for another vocabulary, or no such
        state.
        """
        if not isinstance(state, Mapping) or not {"method", "vocabulary", "counter"} <= set(state):
            raise ValueError("GatedObjective: expected a state that it has saved")
        if state["vocabulary"] != self.vocabulary:
            raise ValueError(
                f"GatedObjective: expected a state over {self.vocabulary} tokens, got {state['vocabulary']}"
            )
        self.micro_batches = 0
        if self.agg is not None and state["counter"] is not None:
            window = self.counter.window
            self.agg.load_checkpoint_state(state)
            self.counter.resize(window)


def label_counts(dataset: Iterable[Mapping[str, Any]], vocabulary: int) -> Tensor:
    """How often each token is a target in a dataset of a causal language model, (V,) int64, for `agps_counts`.

    Args:
        dataset: examples with `labels` or else `input_ids`, a sequence of tokens each. The first token of a sequence is
            no target, and neither is −100.
        vocabulary: V; a token outside [0, V) is a ValueError.

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
