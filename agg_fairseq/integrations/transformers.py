"""Gates on the output embedding of a Hugging Face transformers model, with its Trainer or in a loop.

    gating = AggGating(vocabulary, rare_fraction=0.3, window=200)
    Trainer(model, args, train_dataset=data, callbacks=[GatedHead(model, gating)])

In a training step with labels, the `F.linear(features, W, b)` of the output layer becomes
`functional.gated_linear`. What follows is the model's own, or that of Trainer, or the user's: the
scale and the cap of the logits, and their losses.
"""

import functools
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..errors import UserError
from ..functional import Gates
from ..functional.chunks import leaves_of_graph
from ..functional.gated_linear import ReplacedLinear, gated_linear
from ..gating import Gating, WindowGating
from .output_layers import IGNORED_LABEL

try:
    from accelerate.state import GradientState
    from transformers import TrainerCallback
    from transformers.loss.loss_utils import ForMaskedLMLoss
    from transformers.trainer_utils import has_length
except ImportError as error:
    raise ImportError(
        f"agg_fairseq.integrations.transformers needs transformers 5 and accelerate ({error}); "
        "pip install '.[transformers]'"
    ) from error

__all__ = ["GatedHead"]

logger = logging.getLogger(__name__)

MOST_EPOCH_SLOTS = 64  # of a window of one epoch: they take at most 64 · 8 bytes for each token
# the name of an attribute of the model, of one of the schedule, and the second one of the labels
GATED_HEAD_KEY = "_gated_head"


class GatedHead(TrainerCallback):
    """Gates the gradient into the output embedding of a model; a callback of Trainer.

    Creating it attaches it to the model, and `remove` takes it off again. A copy of the model, also
    by `copy.deepcopy` or `torch.save`, is a plain model. In a loop of your own, call `commit_update`
    after each step of the optimizer, and keep `state_dict` in the checkpoint; with Trainer, this is
    in its `scheduler.pt`. Labels count each time that their loss is computed: with SAM or LBFGS,
    several times per update.

    Position t predicts label t + 1 in models whose `forward` calls `self.loss_function`, unless it
    is that of masked language models; in all others (T5, BART, Whisper, BERT), which compute a loss
    of their own, label t. The first backward pass whose labels can tell checks it: the gradient of
    a likelihood is lowest at the target.

    Args:
        model: of transformers, with a linear output layer, tied or not, with or without bias; or of
            PEFT, where this layer trains (`modules_to_save`).
        gating: the rule, such as an `AggGating` over the rows of the output layer. If it excludes
            no tokens, then the model's padding, begin and end of a sequence are never rare. With
            Trainer, a window that is not given is one epoch, if its length is known, in at most 64
            parts, the oldest of which is forgotten at a time.
        tokenizer: that of the model, a fast one, or its processor. Its special and reserved tokens
            and the rows beyond its vocabulary are then never rare either; they would fill the rare
            group.

    Raises:
        UserError: the gates would not be right for the model; mostly in the first step.
    """

    def __init__(self, model: Any, gating: Gating, *, tokenizer: Any = None) -> None:
        self.model = model = model.get_base_model() if hasattr(model, "get_base_model") else model
        attributes, self._mark = vars(model), (id(model), id(self))
        if (
            attributes.get(GATED_HEAD_KEY, self._mark)[0] == id(model)
            and GATED_HEAD_KEY in attributes
        ):
            raise UserError("GatedHead: this model already has one; remove() it first")
        self.gating = gating
        self._check_rows(self._head().weight)
        special = _special_tokens(model, tokenizer, gating.excluded is None, gating.vocabulary)
        mask = torch.zeros(gating.vocabulary, dtype=torch.bool)
        mask[special] = True
        known = gating.excluded
        gating.excluded = mask if known is None else known | mask.to(known.device)
        self._updates_of_epoch: int | None = None
        gating.is_trained_by = self._is_trained_by
        self._is_used = self._is_checked = False
        self._other: Tensor | None = None  # labels in the other alignment than the targets
        self._has_told_beta2 = self._has_told_labels = False
        self._signature = inspect.signature(model.forward)
        bases = [vars(base)["forward"] for base in type(model).__mro__ if "forward" in vars(base)]
        names = {name for one in bases for name in inspect.unwrap(one).__code__.co_names}
        self._shifts = "loss_function" in names and model.loss_function is not ForMaskedLMLoss
        self._before = attributes.get("forward")
        # an attribute of the instance, since PEFT calls `model.forward(…)` itself, without hooks
        self._forward = MethodType(_gated_forward(self, model.forward), model)
        attributes |= {"forward": self._forward, GATED_HEAD_KEY: self._mark}

    def remove(self) -> None:
        """Restores the model as it was before; a second call does nothing."""
        self.roll_back_update()
        attributes = vars(self.model)
        if attributes.get(GATED_HEAD_KEY) == self._mark:
            del attributes[GATED_HEAD_KEY]
            if attributes.get("forward") == self._forward:  # which others may have wrapped since
                del attributes["forward"]
                attributes |= {} if self._before is None else {"forward": self._before}

    def _head(self) -> Any:
        """The output layer."""
        head = self.model.get_output_embeddings()
        if hasattr(head, "modules_to_save"):  # of PEFT, around the copies that train
            copies = [
                one for name, one in head.modules_to_save.items() if name in head.active_adapters
            ]
            head = copies[0] if copies else head.original_module
        if getattr(getattr(head, "weight", None), "ndim", 0) != 2:
            name, found = type(self.model).__name__, type(head).__name__
            raise UserError(f"GatedHead: expected {name} to end in an nn.Linear, found {found}")
        return head

    # A training step

    @torch.compiler.disable(recursive=False)
    def _step(self, forward: Callable, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Stands in the place of the model's `forward`."""
        labels = keywords.pop(GATED_HEAD_KEY, None)
        given = {**self._signature.bind_partial(*arguments, **keywords).arguments, **keywords}
        labels = labels if given.get("labels") is None else given["labels"]
        if not self.model.training or not torch.is_grad_enabled():
            return forward(*arguments, **keywords)
        if labels is None:
            if not self._has_told_labels:
                self._has_told_labels = True
                logger.warning(
                    "GatedHead: found a training step without labels, which is not gated; give the "
                    "model its labels, also where the loss is your own"
                )
            return forward(*arguments, **keywords)
        if self.gating.has_stepped:
            raise UserError(
                "GatedHead: the optimizer has stepped, but the update has not ended; give GatedHead "
                "to Trainer in callbacks=[…], or call commit_update() after each step"
            )
        head, target = self._head(), given.get("shift_labels")
        if not head.weight.requires_grad:
            raise UserError(
                "GatedHead: the output embedding does not train, so that there is no gradient to "
                "gate; unfreeze it (with PEFT: modules_to_save of the active adapter)"
            )
        if target is None:
            target, other = F.pad(labels, (0, 1), value=IGNORED_LABEL)[..., 1:], labels
            target, other = (target, other) if self._shifts else (other, target)
            self._other = other.to(head.weight.device)
        target = target.to(head.weight.device)
        self._is_used, gates = False, self.gating(target)
        mode = ReplacedLinear(head, functools.partial(self._linear, target, gates))
        attributes, before = vars(head), vars(head).get("forward")
        attributes["forward"] = functools.partial(_forward_within, mode, head.forward)
        try:
            output = forward(*arguments, **keywords)
        finally:
            del attributes["forward"]
            attributes |= {} if before is None else {"forward": before}
        if not self._is_used:
            raise UserError(
                "GatedHead: the model has not called its output layer, as with fused losses such as "
                "Liger's and chunked ones; switch them off"
            )
        return output

    def _linear(
        self,
        target: Tensor,
        gates: Gates | None,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The logits."""
        if not self._is_checked:
            self._check_rows(weight)
        positions = features.shape[:-1]
        if positions not in (target.shape, (target.numel(),)):
            raise UserError(
                f"GatedHead: found logits of the positions {(*positions,)} for the labels "
                f"{(*target.shape,)}; expected those of all labels (logits_to_keep=0)"
            )
        if not self._is_checked and self.gating.counter is not None:
            self._check_workers(features)
        self._is_used, target = True, target.reshape(positions)
        logits = gated_linear(features, weight, bias, target, gates)
        if not self._is_checked and logits.requires_grad and self._other is not None:
            other = self._other.reshape(positions)
            logits.register_hook(functools.partial(self._check_targets, target, other))
        return logits

    def _check_rows(self, weight: Tensor) -> None:
        rows, vocabulary = len(weight), self.gating.vocabulary
        if rows != vocabulary or hasattr(weight, "device_mesh"):
            raise UserError(
                f"GatedHead: found {rows} rows in the output embedding, expected {vocabulary}, as "
                "the rule has it, all in this process; resize it before both are made, and do not "
                "shard it"
            )

    def _check_workers(self, features: Tensor) -> None:
        """UserError for the features of a model that works on one batch in several workers, if it
        is not known which. (FSDP gathers its parameters before.)"""
        if torch.distributed.is_initialized() and self.gating.process_group is None:
            if any(hasattr(leaf, "device_mesh") for leaf in leaves_of_graph(features)):
                raise UserError(
                    "GatedHead: found a model with sharded parameters, whose workers may have the "
                    "same batch; expected process_group of the rule, the workers with batches of "
                    'their own, such as mesh["dp"].get_group()'
                )

    def _check_targets(self, target: Tensor, other: Tensor, gradient: Tensor) -> None:
        """Called with dL/dlogits (..., V) of backward passes, until one decides: of the positions
        whose labels t and t + 1 differ, most have their lowest gradient, as a likelihood has at its
        target, at one of them."""
        lowest = gradient.argmin(-1)
        differs = (target != other) & gradient.any(-1)
        right, wrong = (2 * (differs & (lowest == one)).sum() for one in (target, other))
        self._is_checked = bool(right > differs.sum())
        if wrong > differs.sum():
            found, taken = ("t", "t + 1") if self._shifts else ("t + 1", "t")
            raise UserError(
                f"GatedHead: found a loss by which position t predicts label {found}; expected {taken} "
                f"for {type(self.model).__name__}, by what its forward calls; it is not supported"
            )

    # The updates of a training

    def commit_update(self) -> None:
        """Ends an update in a loop of your own, as `Gating.commit_update`; does nothing where
        `accelerator.accumulate` lets accelerate's optimizer do nothing."""
        if GradientState().sync_gradients or self.gating.has_stepped:
            if not self.gating.is_under_way:
                raise UserError(
                    "GatedHead: found no step of the model with labels in this update; train it, and "
                    "no copy, by its own forward, which fused losses as of TRL replace"
                )
            self.gating.commit_update()

    def roll_back_update(self) -> None:
        """Ends an update whose step was skipped, as `Gating.roll_back_update`."""
        self.gating.roll_back_update()

    def _is_trained_by(self, optimizer: torch.optim.Optimizer) -> bool:
        """Has this optimizer, which has stepped, parameters of the model? Warns of its β₂."""
        parameters, is_trained = {*self.model.parameters()}, False
        weight = self.model.get_output_embeddings().weight
        for group in optimizer.param_groups:
            is_trained |= not parameters.isdisjoint(group["params"])
            betas = group.get("betas")
            beta2 = betas[1] if isinstance(betas, tuple | list) else 0
            if beta2 >= 0.999 and weight in {*group["params"]} and not self._has_told_beta2:
                self._has_told_beta2 = True
                logger.warning(
                    f"GatedHead: found β₂ = {beta2} for the output embedding, with which there may "
                    "be nothing to gain (docs/which-cure.md)"
                )
        return is_trained

    def state_dict(self) -> dict[str, Any]:
        """The counts, for the checkpoint of a loop of your own."""
        return self.gating.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned.

        ValueError for another vocabulary; the state of another rule leaves the window empty.
        """
        if state.keys() == self.gating.state_dict().keys():
            self.gating.load_state_dict(dict(state))
        else:
            logger.warning("GatedHead: found no counts of its rule; their window starts empty")

    # The events of Trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Sets the window; restores the counts where Trainer resumes from a checkpoint."""
        loader, schedule = kwargs["train_dataloader"], kwargs["lr_scheduler"]
        is_attached = vars(self.model).get(GATED_HEAD_KEY) == self._mark
        if args.n_gpu > 1 or not is_attached or self.model not in kwargs["model"].modules():
            raise UserError(
                f"GatedHead: found a training on {args.n_gpu} GPUs, of a model with another "
                "GatedHead or none; expected one on one GPU (torchrun starts a process for each), "
                "of the model that GatedHead was made with, without model_init"
            )
        self.roll_back_update()
        source = getattr(loader, "base_dataloader", loader)  # of accelerate, around that of torch
        source.collate_fn = functools.partial(_copy_labels, source.collate_fn)
        gating, self._updates_of_epoch = self.gating, None
        if has_length(loader):
            steps = args.gradient_accumulation_steps
            self._updates_of_epoch = max(1, -(-len(loader) // steps))
            self.on_epoch_begin(args, state, control)
        if isinstance(gating, WindowGating):
            window = gating.counter.window or 1
            if gating.takes_epoch and self._updates_of_epoch is not None:
                gating.counter.most_slots = MOST_EPOCH_SLOTS
            if window >= state.max_steps:
                logger.warning(
                    f"GatedHead: found a window of {window} updates in a training of "
                    f"{state.max_steps}; choose a shorter one (docs/method.md)"
                )
        attributes = vars(getattr(schedule, "scheduler", schedule))
        if state.global_step > 0:
            self.load_state_dict(attributes.get(GATED_HEAD_KEY, {}))
        attributes[GATED_HEAD_KEY] = _Saved(self)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tells the rule of an epoch that begins."""
        if self._updates_of_epoch is not None:
            self.gating.start_epoch(int((state.epoch or 0) + 1e-6) + 1, self._updates_of_epoch)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends an update."""
        was_skipped = getattr(kwargs.get("optimizer"), "step_was_skipped", False)
        self.roll_back_update() if was_skipped else self.commit_update()


class _Saved:
    """An attribute of a schedule, whose `state_dict` has all of them; pickled as `state_dict()` of
    a GatedHead at that time."""

    def __init__(self, gated: GatedHead) -> None:
        self.gated = gated

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.gated.state_dict().items())


def _gated_forward(gated: GatedHead, before: Callable[..., Any]) -> Callable[..., Any]:
    """The forward of an instance of a model; of a copy of it, or after `remove`, it is `before`."""
    own = getattr(before, "__func__", lambda model, *given, **more: before(*given, **more))

    @functools.wraps(own)  # Trainer looks at its signature
    def forward(model: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        if vars(model).get(GATED_HEAD_KEY) != (id(model), id(gated)):
            return own(model, *arguments, **keywords)
        return gated._step(functools.partial(own, model), arguments, keywords)

    return forward


@torch.compiler.disable
def _forward_within(mode: ReplacedLinear, forward: Callable[..., Tensor], *given: Any) -> Tensor:
    with mode:
        return forward(*given)


def _copy_labels(collate: Callable[[list[Any]], Any], examples: list[Any]) -> Any:
    """A batch whose labels have a second name: those with the first, Trainer keeps from the model
    for a loss of its own."""
    batch = collate(examples)
    return batch if "labels" not in batch else {**batch, GATED_HEAD_KEY: batch["labels"]}


def _special_tokens(model: Any, tokenizer: Any, of_model: bool, vocabulary: int) -> list[int]:
    """Those that the model's configuration knows, if wanted, and those that a tokenizer knows."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id") if of_model else ()
    found = [getattr(model.config.get_text_config(), name, None) for name in names]
    flat = [token for one in found for token in (one if isinstance(one, list) else [one])]
    tokens = {token for token in flat if token is not None and 0 <= token < vocabulary}
    if tokenizer is not None:
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise UserError(
                f"GatedHead: found the slow tokenizer {type(tokenizer).__name__}; expected a fast "
                "one, as AutoTokenizer loads it, or a rule with its tokens as `excluded`"
            )
        listed = TokenizerVocabulary.parse(backend.to_str(), Path("tokenizer"), vocabulary)
        tokens |= {*listed.special_ids, *listed.unused}
    return [*tokens]
