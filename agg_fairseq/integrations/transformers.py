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
from contextlib import nullcontext
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..errors import UserError
from ..functional import Gates
from ..functional.chunks import leaves_of_graph
from ..functional.gated_linear import ReplacedLinear, changes_when_read, gated_linear, whole
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
# the name of an attribute of the model, of its output layer, and of the schedule
GATED_HEAD_KEY = "_gated_head"


class GatedHead(TrainerCallback):
    """Gates the gradient into the output embedding of a model; a callback of Trainer.

    Creating it attaches it to the model, and `remove` takes it off again. A copy of the model, also
    by `copy.deepcopy` or `torch.save`, is a plain model. In a loop of your own, call `commit_update`
    after each step of the optimizer, and keep `state_dict` in the checkpoint; with Trainer, this is
    in its `scheduler.pt`. Labels count each time that their loss is computed: with SAM or LBFGS,
    several times per update.

    Position t predicts label t + 1 in models whose `forward` calls `self.loss_function`, but for
    masked language models and those with an encoder; in all others (T5, BART, Whisper, BERT), label
    t. The first backward pass whose labels can tell checks it: the gradient of a likelihood is
    lowest at the target. A label whose loss has the weight 0 is no appearance of its token: it has
    to be −100.

    In training, the output layer can be called by the model's forward pass alone. For other calls,
    as for an early exit, write `gated_linear(hidden, W, b, target, gating.gates(target))`.

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
        if vars(model).get(GATED_HEAD_KEY, (None,))[0] == id(model):
            raise UserError("GatedHead: this model already has one; remove() it first")
        self.gating = gating
        head = self._head()
        weight, own = head.weight, {*head.modules()}  # with the layer that PEFT wraps
        self._check_rows(weight)
        for name, layer in model.named_modules():
            if not isinstance(layer, nn.Linear) or layer in own:
                continue
            # `layer.weight` would compute a parametrized one, which may change it (spectral_norm)
            if layer._parameters.get("weight") is weight:
                raise UserError(
                    f"GatedHead: found the weight of the output layer in {name}, whose targets are "
                    "not known; expected it in one layer, and in the input embedding"
                )
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
        self._shifts = (
            "loss_function" in names
            and model.loss_function is not ForMaskedLMLoss
            and not model.config.is_encoder_decoder
        )
        self._within: Any = None  # the context of the output layer in a forward pass
        self._replaced: list[tuple[nn.Module, Any, Any]] = []  # its forward before, and ours
        self._replace(model, self._step)
        self._replace(self._head(), self._call_head)

    def _replace(self, module: nn.Module, step: Callable[..., Any]) -> None:
        """Puts `step` in the place of the forward of a module, if it is not there.

        It is an attribute of the instance, since PEFT calls `model.forward(…)` itself, without hooks.
        """
        attributes, mark = vars(module), (id(module), id(self))
        if attributes.get(GATED_HEAD_KEY) != mark:
            forward = MethodType(_gated_forward(mark, step, module.forward), module)
            self._replaced.append((module, attributes.get("forward"), forward))
            attributes |= {"forward": forward, GATED_HEAD_KEY: mark}

    def _is_attached(self, module: nn.Module) -> bool:
        return vars(module).get(GATED_HEAD_KEY) == (id(module), id(self))

    def remove(self) -> None:
        """Restores the model as it was before; a second call does nothing."""
        self.roll_back_update()
        while self._replaced:
            module, before, forward = self._replaced.pop()
            attributes = vars(module)
            if self._is_attached(module):
                del attributes[GATED_HEAD_KEY]
            if attributes.get("forward") == forward:  # which others may have wrapped since
                del attributes["forward"]
                attributes |= {} if before is None else {"forward": before}

    def _head(self) -> Any:
        """The output layer."""
        head = self.model.get_output_embeddings()
        if hasattr(head, "modules_to_save"):  # of PEFT, around the copies that train
            copies = [
                one for name, one in head.modules_to_save.items() if name in head.active_adapters
            ]
            head = copies[0] if copies else head.original_module
        if getattr(getattr(head, "weight", None), "ndim", 0) != 2:
            name, kind = type(self.model).__name__, type(head)
            raise UserError(
                f"GatedHead: expected {name} to end in an nn.Linear, found "
                f"{kind.__module__}.{kind.__name__}"
            )
        return head

    # A training step

    @torch.compiler.disable(recursive=False)
    def _step(self, forward: Callable, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Stands in the place of the model's `forward`."""
        if not self.model.training or not torch.is_grad_enabled():
            return forward(*arguments, **keywords)
        given = {**self._signature.bind_partial(*arguments, **keywords).arguments, **keywords}
        labels = _popped_labels(given) if given.get("labels") is None else given["labels"]
        if labels is None:
            if not self._has_told_labels:
                self._has_told_labels = True
                logger.warning(
                    "GatedHead: found a training step without labels, which is not gated; give the "
                    "model its labels, also where the loss is your own"
                )
            return self._run(forward, arguments, keywords, nullcontext())
        if self.gating.has_stepped:
            raise UserError(
                "GatedHead: the optimizer has stepped, but the update has not ended; give GatedHead "
                "to Trainer in callbacks=[…], or call commit_update() after each step"
            )
        head, target = self._head(), given.get("shift_labels")
        if not self._is_checked and changes_when_read(head):
            raise UserError(
                "GatedHead: found an output embedding that changes each time that it is read, as by "
                "spectral_norm of torch's parametrizations; expected one without"
            )
        self._other = None
        if target is None:
            target, other = F.pad(labels, (0, 1), value=IGNORED_LABEL)[..., 1:], labels
            target, other = (target, other) if self._shifts else (other, target)
            self._other = other.to(head.weight.device)
        target = target.to(head.weight.device)
        is_fused, fused = keywords.get("fused_lm_head"), None
        if is_fused:  # TRL's head, which forms no logits; a loss of its own may lower a likelihood
            self._other = None
            if not self._is_checked:
                with torch.random.fork_rng(), torch.no_grad():
                    fused = forward(*arguments, **keywords)
            keywords = {**keywords, "fused_lm_head": False}
        self._is_used, gates = False, self.gating(target)
        linear = functools.partial(self._linear, target, gates)
        output = self._run(forward, arguments, keywords, ReplacedLinear(head, linear))
        if not self._is_used:
            raise UserError(
                "GatedHead: the model has not called its output layer, as with fused losses such as "
                "Liger's and chunked ones, or calls it in torch's checkpoint or by another weight; "
                "switch that off"
            )
        if is_fused:
            last = None if given.get("shift_labels") is not None else -1
            output = _fused_output(output, target[:, :last], fused)
            self._is_checked = self._is_checked or bool(output.label_mask.any())
        return output

    @torch.compiler.disable(recursive=False)
    def _run(
        self, forward: Callable, arguments: tuple, keywords: dict[str, Any], within: Any
    ) -> Any:
        """A forward pass of the model, whose output layer is called `within` a context."""
        self._replace(self._head(), self._call_head)
        self._within = within
        try:
            return forward(*arguments, **keywords)
        finally:
            self._within = None

    @torch.compiler.disable
    def _call_head(self, forward: Callable, arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Stands in the place of the output layer's `forward`."""
        if self._within is not None:
            with parametrize.cached(), self._within:
                return forward(*arguments, **keywords)
        if self.model.training and torch.is_grad_enabled():
            raise UserError(
                "GatedHead: found a call of the output layer after the forward pass, as of an early "
                "exit, or in the backward pass, whose targets are not known; expected gated_linear("
                "hidden, W, b, target, gating.gates(target))"
            )
        return forward(*arguments, **keywords)

    def _linear(
        self,
        target: Tensor,
        gates: Gates | None,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The logits."""
        if not self._is_checked:
            self._check_rows(weight)
        if not weight.requires_grad:
            raise UserError(
                "GatedHead: the output embedding does not train, so that there is no gradient to "
                "gate; unfreeze it (with PEFT: modules_to_save of the active adapter)"
            )
        positions = input.shape[:-1]
        if positions not in (target.shape, (target.numel(),)):
            raise UserError(
                f"GatedHead: found logits of the positions {(*positions,)} for the labels "
                f"{(*target.shape,)}; expected those of all labels (logits_to_keep=0)"
            )
        if self._is_used:
            raise UserError(
                "GatedHead: found a second call of the output layer in a forward pass, as for "
                "several tokens ahead, whose targets are not known; expected gated_linear(hidden, "
                "W, b, target, gating.gates(target)) for it"
            )
        if not self._is_checked and self.gating.counter is not None:
            self._check_workers(input, weight)
        self._is_used, target = True, target.reshape(positions)
        logits = gated_linear(input, weight, bias, target, gates)
        if not self._is_checked and logits.requires_grad and self._other is not None:
            other = self._other.reshape(positions)
            logits.register_hook(functools.partial(self._check_targets, target, other))
        return logits

    def _check_rows(self, weight: Tensor) -> None:
        rows, vocabulary = len(weight), self.gating.vocabulary
        if rows != vocabulary:
            raise UserError(
                f"GatedHead: found {rows} rows in the output embedding, expected {vocabulary}, as "
                "the rule has it; resize it before both are made"
            )

    def _check_workers(self, features: Tensor, weight: Any) -> None:
        """Finds which workers have the same batch: those that share W. UserError for the features
        of a model that works on one batch in several workers, if it is not known which. (FSDP
        gathers its parameters before.)"""
        is_late = getattr(self.gating, "count_current_batch", False)  # this batch is summed already
        if hasattr(weight, "device_mesh") and not is_late:
            self.gating.is_counted = weight.device_mesh.get_local_rank() == 0
        elif torch.distributed.is_initialized() and self.gating.process_group is None:
            leaves = weight, *leaves_of_graph(features)
            if any(hasattr(leaf, "device_mesh") for leaf in leaves):
                raise UserError(
                    "GatedHead: found a model with sharded parameters, whose workers may have the "
                    "same batch; expected process_group of the rule, the workers with batches of "
                    'their own, such as mesh["dp"].get_group()'
                )

    def _check_targets(self, target: Tensor, other: Tensor, gradient: Tensor) -> None:
        """Called with dL/dlogits (..., V) of backward passes, until one decides: of the positions
        whose labels t and t + 1 differ, most have their lowest gradient, as a likelihood has at its
        target, at one of them."""
        lowest, has_gradient = whole(gradient.argmin(-1)), whole(gradient.any(-1))
        differs = (target != other) & has_gradient
        right, wrong = (2 * (differs & (lowest == one)).sum() for one in (target, other))
        self._is_checked = bool(right > differs.sum())
        if wrong > differs.sum():
            found, taken = ("t", "t + 1") if self._shifts else ("t + 1", "t")
            raise UserError(
                f"GatedHead: found a loss by which position t predicts label {found}; expected {taken} "
                f"for {type(self.model).__name__}, by what its forward calls; it is not supported"
            )
        weightless = ((target != IGNORED_LABEL) & ~has_gradient).sum()
        if self._is_checked and weightless:
            logger.warning(
                f"GatedHead: found {weightless} labels without a gradient, as where their weight in "
                "the loss is 0; expected −100 there, since each label is counted"
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
        is_known = self._is_attached(self.model) and self.model in kwargs["model"].modules()
        if args.n_gpu > 1 or not is_known:
            raise UserError(
                f"GatedHead: found a training on {args.n_gpu} GPUs, of a model with another "
                "GatedHead or none; expected one on one GPU (torchrun starts a process for each), "
                "of the model that GatedHead was made with, without model_init"
            )
        self.roll_back_update()
        source = getattr(loader, "base_dataloader", loader)  # of accelerate, around that of torch
        if hasattr(source, "collate_fn"):
            source.collate_fn = functools.partial(_remembering_collate, source.collate_fn)
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


def _gated_forward(mark: Any, step: Callable[..., Any], before: Callable[..., Any]) -> Any:
    """The forward of an instance of a module; of a copy of it, or after `remove`, it is `before`."""
    own = getattr(before, "__func__", lambda module, *given, **more: before(*given, **more))

    @functools.wraps(own)  # Trainer looks at its signature
    def forward(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        if vars(module).get(GATED_HEAD_KEY) != mark or mark[0] != id(module):
            return own(module, *arguments, **keywords)
        return step(functools.partial(own, module), arguments, keywords)

    return forward


def _fused_output(output: Any, target: Tensor, fused: Any) -> Any:
    """What TRL's fused head returns for the first T targets (B, T), from the logits of `output`.

    UserError if that is not nearly what it returned itself, `fused`, unless that is None.
    """
    from trl.trainer.utils import FusedCausalLMOutput

    logits, mask = output.logits[:, : target.size(1)], target != IGNORED_LABEL
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    values = {
        "log_probs": log_p.gather(-1, target.where(mask, 0)[..., None]).squeeze(-1),
        "entropy": -(log_p.exp() * log_p).sum(-1),
        "log_sum_sq_probs": (2 * log_p.detach()).logsumexp(-1),
        "mean_logits": logits.detach().mean(-1, dtype=log_p.dtype),
        "is_top1": log_p.argmax(-1) == target,
    }
    values = {name: value.masked_fill(~mask, 0) for name, value in values.items()}
    if fused is not None:
        expected, found = fused.log_probs.sum(), values["log_probs"].sum()
        tolerance = max(1e-4, 2 * torch.finfo(logits.dtype).eps)
        if (found - expected).abs() > tolerance * expected.abs():
            raise UserError(
                f"GatedHead: found a log-likelihood of {expected:.4g} in TRL's fused head, and of "
                f"{found:.4g} by the logits; expected the same, as with a temperature of 1"
            )
    return FusedCausalLMOutput(label_mask=mask, aux_loss=output.get("aux_loss"), **values)


# Labels for losses of Trainer and of the user, which take them out of the batch.

_popped: tuple[Any, list[Any]] = None, []  # the last ones, and what was beside them


def _popped_labels(given: Mapping[str, Any]) -> Tensor | None:
    """The labels that were popped from the batch of which these arguments are."""
    labels, beside = _popped
    is_of_batch = any(one is other for one in given.values() for other in beside)
    return labels if is_of_batch else None


@functools.cache
def _remembering(kind: type) -> type:
    """A kind of batch from which popped labels are remembered."""

    class Batch(kind):  # type: ignore[misc]
        def pop(self, key: str, *default: Any) -> Any:
            value = super().pop(key, *default)
            if key == "labels":
                global _popped
                _popped = value, [one for one in self.values() if isinstance(one, Tensor)]
            return value

        def __reduce__(self) -> tuple[Any, ...]:  # from a worker of the loader
            return _as_remembering, (kind, {**self})

    return Batch


def _as_remembering(kind: type, batch: Mapping[str, Any]) -> Any:
    return _remembering(kind)(batch)


def _remembering_collate(collate: Callable[[list[Any]], Any], examples: list[Any]) -> Any:
    batch = collate(examples)
    return _remembering(type(batch))(batch) if "labels" in batch else batch


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
