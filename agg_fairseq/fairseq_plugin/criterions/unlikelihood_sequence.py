"""`--criterion unlikelihood_sequence`: sequence-level unlikelihood fine-tuning (Welleck et al.
2020)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from fairseq.criterions import register_criterion
from torch import Tensor

from ...functional import TERMS, Chunk, LossOutput, Values, repeated_ngrams, unlikelihood
from .. import decoding, option
from ..output_layer import unwrapped
from .base import GatedCriterion, GatedCriterionConfig


@dataclass
class UnlikelihoodSequenceCriterionConfig(GatedCriterionConfig):
    """Options of `--criterion unlikelihood_sequence`; the defaults are the paper's."""

    ul_sequence_rate: float = option(
        0.5, "share of the updates that are made on continuations, in [0, 1]"
    )
    ul_ngram: int = option(4, "length of the n-grams whose repetition is penalized")
    ul_prefix_length: int = option(50, "tokens of a prefix")
    ul_completion_length: int = option(100, "tokens of its greedy continuation")


@register_criterion("unlikelihood_sequence", dataclass=UnlikelihoodSequenceCriterionConfig)
class UnlikelihoodSequenceCriterion(GatedCriterion):
    """Fine-tunes a language model against its own repetitions.

    A share of the updates continues prefixes of the batch greedily, and punishes the tokens of the
    continuation that belong to an n-gram it holds already: `L = −Σ_t log(1 − p(x_t))`. The others
    train as `--criterion unlikelihood` does with the same `--ul-alpha`. Both alternate evenly, the
    same on every worker.
    """

    logged: ClassVar[dict[str, int]] = GatedCriterion.logged | {
        "ul_sequence_loss": 3,
        "repeated": 4,
    }

    def __init__(self, cfg: UnlikelihoodSequenceCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        if not 0 <= cfg.ul_sequence_rate <= 1:
            raise ValueError(
                f"--ul-sequence-rate: expected a share in [0, 1], got {cfg.ul_sequence_rate}"
            )
        if min(cfg.ul_ngram, cfg.ul_prefix_length, cfg.ul_completion_length) < 1:
            raise ValueError(
                "expected at least 1 token in --ul-ngram, --ul-prefix-length and "
                "--ul-completion-length"
            )
        tokens_per_sample = getattr(getattr(task, "args", None), "tokens_per_sample", None)
        if tokens_per_sample is None or not hasattr(task, "dictionary"):
            raise ValueError(
                f"found the task {type(task).__name__}; expected language_modeling, "
                "whose text goes on"
            )
        if cfg.ul_prefix_length > tokens_per_sample:
            raise ValueError(
                f"--ul-prefix-length: expected at most --tokens-per-sample {tokens_per_sample}, "
                f"got {cfg.ul_prefix_length}"
            )
        self._continues = False  # is this update made on continuations?

    def start_update(self, update_num: int) -> None:
        """Makes ⌊n · rate⌋ of n updates on continuations."""
        super().start_update(update_num)
        rate = self.cfg.ul_sequence_rate
        self._continues = math.floor((update_num + 1) * rate) > math.floor(update_num * rate)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """A batch without a whole prefix is trained on as it is."""
        if self.training and self._continues:
            tokens, length = sample["net_input"]["src_tokens"], self.cfg.ul_prefix_length
            # With their continuations, they have about as many tokens as the batch.
            number = max(1, tokens.size(1) // (length + self.cfg.ul_completion_length))
            number = min(number, tokens.size(1) // length)
            prefixes = tokens[:, : number * length].reshape(-1, length)
            prefixes = prefixes[(prefixes != self.padding_idx).all(1)]  # B' x P
            if len(prefixes):
                return self._continuation_loss(model, prefixes, reduce)
        return super().forward(model, sample, reduce)

    def result(self, weight: Tensor, output: LossOutput, sample: Any, **options: Any) -> Any:
        """In an update on continuations, what other workers measure is 0 here: fairseq adds up the
        logs of workers by key, tensors apart from numbers, and needs the same of both."""
        if self.training and self._continues:
            zero, weights = output.nll.new_zeros(()), self.training_loss.weights
            terms = [term for term in TERMS if term.of_weight is None and weights[term.option]]
            nothing = {term.logged: (zero, zero.long()) for term in terms}
            nothing |= {"ul_sequence_loss": (zero, zero.long()), "repeated": (zero, 0)}
            output = output._replace(logged=nothing | output.logged)
        return super().result(weight, output, sample, **options)

    def _continuation_loss(
        self, model: Any, prefixes: Tensor, reduce: bool
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of the model's own continuations of prefixes (B', P)."""
        start, length = prefixes.size(1), self.cfg.ul_completion_length
        continuation = decoding.continuation(
            unwrapped(model), prefixes, length, forbidden=(self.padding_idx,)
        )
        repeated = repeated_ngrams(continuation, self.cfg.ul_ngram)  # B' x L, as continuation
        tokens = torch.cat([prefixes, continuation], dim=1)
        lengths = torch.full_like(tokens[:, 0], tokens.size(1) - 1)
        net_input = {"src_tokens": tokens[:, :-1], "src_lengths": lengths}
        # only the continuation has targets
        target = torch.full_like(tokens[:, 1:], self.padding_idx)
        target[:, start - 1 :] = continuation
        is_punished = torch.zeros_like(target, dtype=torch.bool)
        is_punished[:, start - 1 :] = repeated
        made_up = {"net_input": net_input, "target": target, "ntokens": repeated.numel()}
        is_punished = is_punished.reshape(-1)

        def repetition(logits: Tensor, chunk: Chunk) -> Values:
            is_candidate = is_punished[chunk.positions]
            penalty = unlikelihood(logits, chunk.target[:, None], is_candidate[:, None])
            return {"losses": penalty, "nll": penalty}

        output, weight = self.loss_of_model(model, made_up, replacement=repetition)
        number = (target != self.padding_idx).sum()
        sequence_loss = output.losses.sum() / math.log(2), number
        output.logged["ul_sequence_loss"] = sequence_loss
        output.logged["repeated"] = repeated.sum(), repeated.numel()
        return self.result(weight, output, made_up, in_nll_loss=False, reduce=reduce)
