"""Gated training of a causal language model of Hugging Face transformers, with its Trainer or in a
loop.

    Trainer(model, args, train_dataset=data, callbacks=[GatedLoss(model, rare_fraction=0.3)])

A transformers model computes `logits = lm_head(features)`, then
`loss = loss_function(logits, labels, …)`. The logits are too late for gates, which treat the
gradients into features and embedding differently. So `GatedLoss` replaces the `forward` of the
model, which in a training step runs the original one with two functions replaced:

- the output layer keeps its input, the features, and returns V known numbers as a placeholder for
  the logits;
- `loss_function` returns the gated loss of the features, divided as transformers divides its own.

The output layer is asked what it computes (`modules.linear_logits`). What becomes of the
placeholder tells in each step whether the model scales or soft-caps its logits (Granite, Cohere,
Gemma 2). Any other change is refused.
"""

import contextlib
import copy
import functools
import inspect
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..errors import UserError
from ..f2 import FactorizedSoftmax, factorized_cross_entropy
from ..modules.linear_logits import NotLinear, ScaleAndCap, leaves, linear_logits, name_of
from ..objective import TERMS, AggObjective, AgpsObjective, FaceObjective, MicroBatch, Objective
from .output_layers import IGNORED

try:
    from accelerate.state import GradientState
    from transformers import PreTrainedModel, TrainerCallback
    from transformers.loss.loss_utils import ForCausalLMLoss
except ImportError as error:
    raise ImportError(
        f"agg_fairseq.integrations.transformers needs transformers 5 and accelerate ({error}); "
        "pip install '.[transformers]'"
    ) from error

__all__ = ["GatedLoss"]

logger = logging.getLogger(__name__)

METHODS: dict[str, type[Objective]] = {
    "agg": AggObjective,
    "agps": AgpsObjective,
    "face": FaceObjective,
    "mle": Objective,
}
GATED = ("agg", "agps")  # methods with a rare group
LOSS = inspect.signature(ForCausalLMLoss)
TINY, HUGE = 2.0**-20, 2.0**40
PROBES = (TINY, HUGE, 1.0, -7.0, 40.0, 0.0, -0.5, 300.0, -HUGE)
"""The placeholder, repeated: a scale and a cap make of the first two themselves."""
MOST_SLOTS = 64  # of the window of one epoch: they take at most 64 · 8 bytes for each token
STATE = "gated_loss"  # the attribute of the schedule of the learning rate that holds the counts


@dataclass
class _Step:
    """What is known of a forward pass in training."""

    head: nn.Module
    logits_of: Callable[[Tensor], Tensor]  # the forward of the head
    labels: Tensor  # as the model was given them, or shifted ones
    features: Tensor | None = None  # (B, T, D), the input of the output layer
    of_head: ScaleAndCap = (1.0, None)  # what the output layer does after H Wᵀ + b
    scale_and_cap: ScaleAndCap = (1.0, None)  # what the model does in all
    target: Tensor | None = None  # (B, T), what is predicted; known when the loss is asked for
    logits: Tensor | None = None  # (1, 1, V), what the model made of the placeholder
    loss: Tensor | None = None  # summed over the targets


class GatedLoss(TrainerCallback):
    """Trains a causal language model of transformers with a gated objective; a callback of Trainer.

    Creating it attaches it to the model, and `remove` takes it off again. In training steps
    `output.logits` is None. A copy of the model, also by `copy.deepcopy` or `torch.save`, is a plain
    model.

    With Trainer, the window of AGG is one epoch unless `window` is given, in at most 64 parts of
    equally many updates, the oldest of which is forgotten at a time. The counts are saved in
    `scheduler.pt` of each checkpoint, and restored on resume. In a loop of your own, call
    `commit_update` after each step of the optimizer, and keep `state_dict` in the checkpoint.

    Args:
        model: a decoder-only language model that ends in a linear layer, tied or not, with or
            without bias, whose logits are not changed but for a scale and a soft cap; or a model of
            PEFT over one, whose output layer trains (`modules_to_save`).
        method: "agg", "agps", "face" or "mle".
        tokenizer: that of the model, a fast one. Its special and reserved tokens and the rows
            beyond its vocabulary are then never rare either; they would fill the rare group.
        excluded: tokens that are never rare; by default the model's padding, begin and end of a
            sequence.
        **options: those of the method's objective, such as `rare_fraction=0.3` of `AggObjective`,
            and of `Objective`, such as `label_smoothing` and `cosreg_gamma`.

    Raises:
        UserError: the gated loss would not be right for the model; mostly in the first step.
        ValueError, TypeError: an option is out of its range, missing, or another method's.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        method: str = "agg",
        *,
        tokenizer: Any = None,
        excluded: Iterable[int] | None = None,
        **options: Any,
    ) -> None:
        if method not in METHODS:
            raise ValueError(
                f"GatedLoss: expected the method {', '.join(METHODS)}, got {method!r}; terms such "
                "as cosine regularization are options of each, such as cosreg_gamma=1.0"
            )
        if hasattr(model, "get_base_model"):  # of PEFT
            model = model.get_base_model()
        self.model = model
        self._name = type(model).__name__
        if _attached(model) is not None:
            raise UserError(f"GatedLoss: this {self._name} already has one; remove() it first")
        self._is_plain = method == "mle" and not any(map(options.get, TERMS))
        head = self._output_layer()
        self._check_loss_function()
        vocabulary = head.weight.size(0)
        spared = {*(_special_tokens(model, vocabulary) if excluded is None else excluded)}
        if tokenizer is not None:
            backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
            if not hasattr(backend, "to_str"):
                raise UserError(
                    f"GatedLoss: found the slow tokenizer {type(tokenizer).__name__}; expected a "
                    "fast one, as AutoTokenizer loads it, or its tokens as excluded=[…]"
                )
            known = TokenizerVocabulary.parse(backend.to_str(), Path("tokenizer"), vocabulary)
            spared |= {*known.special_ids, *known.unused}
        if min(spared, default=0) < 0:
            raise ValueError(f"expected excluded in [0, {vocabulary}), got {min(spared)}")
        given = {name: value for name, value in options.items() if value is not None}
        if method in GATED:
            given["excluded"] = mask = torch.zeros(vocabulary, dtype=torch.bool)
            mask[[*spared]] = True
        self.method = method
        self.objective = METHODS[method](vocabulary, ignore_index=IGNORED, **given)
        self._takes_epoch = method == "agg" and "window" not in given
        self._step: _Step | None = None
        self._has_loss = self._has_stepped = False  # in the update under way
        self._step_hook: RemovableHandle | None = None
        # labels of the update under way, copies of those on a CPU, and what was decided of them
        self._counted: list[tuple[Tensor, Tensor | None, tuple, MicroBatch]] = []
        self._placeholder = torch.empty(0)  # (1, 1, V), on the CPU
        self._seen: tuple[Tensor, ScaleAndCap] | None = None  # what it became in the last step
        self._has_told_hooks = False
        self._signature = inspect.signature(model.forward)
        attributes = vars(model)
        if attributes.get(ATTACHED) is None:
            attributes[ATTACHED] = _Attached(attributes.get("forward"))
            attributes["forward"] = MethodType(_gated_forward(type(model)), model)
        attributes[ATTACHED].gated = self

    def remove(self) -> None:
        """Restores the model as it was before; a second call does nothing."""
        self._forget_update()
        if _attached(self.model) is not self:
            return
        attributes = vars(self.model)
        attributes[ATTACHED].gated = None
        # unless others have wrapped it since, as accelerate does
        forward = attributes.get("forward")
        if getattr(forward, "__func__", None) is _gated_forward(type(self.model)):
            before = attributes.pop(ATTACHED).before
            del attributes["forward"]
            if before is not None:
                attributes["forward"] = before

    def _check_loss_function(self) -> None:
        if self.model.loss_function is not ForCausalLMLoss:
            raise UserError(
                "GatedLoss: expected a model with the loss of causal language models, got "
                f"{self._name}"
            )

    def _output_layer(self) -> nn.Module:
        head = self.model.get_output_embeddings()
        if hasattr(head, "modules_to_save"):  # PEFT's wrapper around the copy that trains
            head = head.modules_to_save[head.active_adapters[0]]
        if getattr(getattr(head, "weight", None), "ndim", 0) != 2:
            raise UserError(
                f"GatedLoss: expected {self._name} to end in an nn.Linear, found "
                f"{type(head).__name__}"
            )
        if isinstance(head, FactorizedSoftmax) and not self._is_plain:
            raise ValueError(
                "a factorized output layer is trained with method='mle', without "
                f"{', '.join(TERMS)}"
            )
        return head

    # A training step, in the order in which the methods are called

    @torch.compiler.disable(recursive=False)
    def _forward(
        self, original: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Stands in the place of the model's `forward`."""
        bound = self._signature.bind_partial(*arguments, **keywords)
        labels = {**bound.arguments, **keywords}.get("labels")
        if labels is None or not self.model.training or not torch.is_grad_enabled():
            return original(*arguments, **keywords)
        self._check_loss_function()
        head = self._output_layer()
        self._step = step = _Step(head, head.forward, labels)
        own_loss = (
            f"GatedLoss: {self._name} computed its loss by itself, as fused losses such as Liger's "
            "do, or works on its logits with tensors of its own; switch that off, or this model is "
            "not supported"
        )
        try:
            with (
                _replaced(step.head, "forward", self._forward_of_head),
                _replaced(self.model, "_loss_function", self._loss_of_model),
            ):
                output = original(*arguments, **keywords)
        except Exception as error:
            if isinstance(error, UserError) or step.features is None or step.target is not None:
                raise
            raise UserError(own_loss) from error  # which the placeholder does not fit
        finally:
            self._step = None
        if step.loss is None:
            raise UserError(own_loss)
        # without the placeholder, which would pass for logits
        if isinstance(output, tuple):
            return tuple(None if part is step.logits else part for part in output)
        return type(output)(
            **{key: value for key, value in output.items() if value is not step.logits}
        )

    @torch.compiler.disable
    def _forward_of_head(self, features: Tensor) -> Tensor:
        """A placeholder for the logits, (1, 1, V); at the second call the loss, a scalar."""
        step = self._step
        if step.target is not None:
            step.loss = self._loss(step)
            return step.loss
        vocabulary, weight = self.objective.vocabulary, step.head.weight
        if step.features is not None:
            raise UserError(
                f"GatedLoss: {self._name} uses its output layer more than once per step; expected "
                "once"
            )
        if len(weight) != vocabulary or hasattr(weight, "device_mesh"):
            raise UserError(
                f"GatedLoss: found {len(weight)} rows in the output embedding, expected "
                f"{vocabulary}, all in this process; resize the vocabulary before GatedLoss is "
                "made, and do not shard this layer"
            )
        if self.method in GATED and not weight.requires_grad:
            raise UserError(
                "GatedLoss: the output embedding does not train, so that there is no gradient to "
                "gate; unfreeze it (with PEFT: modules_to_save), or use method='mle'"
            )
        if not isinstance(step.head, FactorizedSoftmax):
            try:
                found = linear_logits(step.logits_of, step.head, features, self.model)
            except NotLinear as problem:
                raise UserError(
                    f"GatedLoss: found an output layer of {self._name} that {problem}; it is not "
                    "supported"
                ) from None
            step.of_head = found.scale, found.softcap
        self._tell_hooks(step.head)
        step.features = features
        dtype = torch.promote_types(features.dtype, torch.float32)
        if (self._placeholder.size(-1), self._placeholder.dtype) != (vocabulary, dtype):
            numbers = torch.tensor(PROBES, dtype=dtype)
            numbers = numbers.repeat(-(-vocabulary // len(PROBES)))[:vocabulary]
            self._placeholder = numbers.view(1, 1, -1).requires_grad_()
            self._placeholder.register_hook(_refuse_other_loss)
        return self._placeholder.clone()  # which the model may change in place

    def _tell_hooks(self, head: nn.Module) -> None:
        """Says once that hooks of others get no logits."""
        hooks = [
            getattr(hook, "__qualname__", repr(hook))
            for hook in head._forward_hooks.values()
            if not getattr(hook, "__module__", "").startswith("torch.")
        ]
        if hooks and not self._has_told_hooks:
            self._has_told_hooks = True
            logger.warning(
                "GatedLoss: in training steps the forward hooks of the output layer "
                f"({', '.join(hooks)}) get a placeholder of shape (1, 1, V), and not the logits"
            )

    @torch.compiler.disable
    def _loss_of_model(self, *arguments: Any, **options: Any) -> Tensor:
        """Stands in the place of `loss_function`, with the arguments of `ForCausalLMLoss`."""
        step = self._step
        bound = LOSS.bind(*arguments, **options)
        bound.apply_defaults()
        given = bound.arguments
        target, ignored, step.logits = (
            given[name] for name in ("shift_labels", "ignore_index", "logits")
        )
        found = None
        if step.features is not None and step.target is None:
            found = self._after_head(step.logits)
        found = None if found is None else _composed(step.of_head, found)
        if found is None or (isinstance(step.head, FactorizedSoftmax) and found != (1.0, None)):
            raise UserError(
                f"GatedLoss: {self._name} changes its logits after the output layer in another way "
                "than by a scale and a soft cap (or at all, for a factorized layer), or uses them "
                "twice; it is not supported"
            )
        step.scale_and_cap = found
        # position t predicts label t + 1, unless the caller has shifted the labels already
        if target is None:
            target = F.pad(given["labels"], (0, 1), value=ignored)[..., 1:]
        else:
            step.labels = target
        target = target.masked_fill(target == ignored, IGNORED).to(step.features.device)
        step.target = target
        step.head(step.features)  # computes the loss where FSDP has gathered W
        number = given["num_items_in_batch"]
        number = (target != IGNORED).sum() if number is None else number
        number = torch.as_tensor(number, device=step.loss.device)
        # without targets NaN as in transformers, with a gradient of 0
        return torch.where(number > 0, step.loss / number.clamp(min=1), torch.nan)

    def _after_head(self, logits: Tensor) -> ScaleAndCap | None:
        """What the model did with the placeholder, None if it is no scale and soft cap."""
        placeholder = self._placeholder
        for parameter in leaves(logits).values():
            if parameter is not placeholder:
                raise UserError(
                    f"GatedLoss: the logits of {self._name} depend on "
                    f"{name_of(parameter, self.model)} after the output layer; it is not supported"
                )
        logits = logits.detach().cpu()
        if logits.shape != placeholder.shape:
            return None
        if self._seen is None or not logits.equal(self._seen[0]):
            found = _scale_and_cap(placeholder.detach(), logits)
            if found is None:
                return None
            self._seen = logits, found
        return self._seen[1]

    def _loss(self, step: _Step) -> Tensor:
        """The loss summed over the targets, a scalar."""
        head, target, objective = step.head, step.target, self.objective
        if self._has_stepped:
            raise UserError(
                "GatedLoss: the optimizer has stepped, but the update has not ended; give GatedLoss "
                "to Trainer in callbacks=[…], or call commit_update() after each step"
            )
        self._has_loss = True
        if isinstance(head, FactorizedSoftmax):
            smoothing = objective.label_smoothing
            inputs = (step.features, head.weight, head.class_weight, target, head.classes)
            return factorized_cross_entropy(*inputs, label_smoothing=smoothing).loss
        micro_batch = None
        if objective.counter is not None:
            if self._step_hook is None:
                self._step_hook = register_optimizer_step_post_hook(self._after_step)
            micro_batch = self._micro_batch(step.labels, target)
        scale, softcap = step.scale_and_cap
        return objective(
            step.features,
            head.weight,
            target,
            getattr(head, "bias", None),
            micro_batch=micro_batch,
            scale=scale,
            softcap=softcap,
        ).loss

    def _micro_batch(self, labels: Tensor, target: Tensor) -> MicroBatch:
        """Counts the targets, but once if the loss of a batch is computed several times, as by SAM,
        LBFGS and gradient checkpointing: then the labels lie in the same memory, unchanged."""
        # NumPy changes memory of a CPU without a new version, and labels of inference mode have none.
        values = labels.clone() if labels.device.type == "cpu" else None
        version = None if labels.is_inference() else labels._version
        memory = (labels.data_ptr(), labels.shape, labels.stride(), version)
        for _, before, other, micro_batch in self._counted:
            is_unchanged = version is not None if before is None else labels.equal(before)
            if memory == other and is_unchanged:
                return micro_batch
        micro_batch = self.objective.micro_batch(target)
        counted = micro_batch._replace(is_dummy=True)  # its predictions too are counted once
        self._counted.append((labels, values, memory, counted))
        return micro_batch

    # The updates of a training

    def commit_update(self) -> None:
        """Ends an update in a loop of your own, as `Objective.commit_update`; does nothing where
        `accelerator.accumulate` lets accelerate's optimizer do nothing."""
        if not GradientState().sync_gradients and not self._has_stepped:
            return
        if not self._has_loss:
            raise UserError(
                "GatedLoss: no loss was computed in this update by the model that GatedLoss was "
                "made with; train this one and no copy, without model_init, compute_loss_func, an "
                "overridden compute_loss, or label_smoothing_factor (GatedLoss has its own)"
            )
        self._forget_update()
        self.objective.commit_update()

    def roll_back_update(self) -> None:
        """Ends an update whose step was skipped, as `Objective.roll_back_update`."""
        self._forget_update()
        self.objective.roll_back_update()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Called after a step of any optimizer."""
        parameters = {*map(id, self.model.parameters())}
        self._has_stepped |= any(
            id(one) in parameters for group in optimizer.param_groups for one in group["params"]
        )

    def _forget_update(self) -> None:
        self._has_loss = self._has_stepped = False
        self._counted = []
        if self._step_hook is not None:
            self._step_hook.remove()
            self._step_hook = None

    def state_dict(self) -> dict[str, Any]:
        """The counts, for the checkpoint of a loop of your own."""
        return {"method": self.method, **self.objective.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, but for the window, which is as the options say.

        The state of another method leaves the window empty. ValueError for another vocabulary.
        """
        counter, saved = self.objective.counter, {**state}
        method = saved.pop("method", None)
        window = None if counter is None else counter.window
        if saved.keys() == self.objective.state_dict().keys():
            self.objective.load_state_dict(saved)
        elif counter is not None:
            logger.warning(
                f"GatedLoss: found the state of the method {method!r}, which has other counts or "
                "none; the window of counts starts empty"
            )
        if counter is not None and window is not None:
            counter.resize(window)

    # The events of Trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Sets the window; restores the counts where Trainer resumes from a checkpoint."""
        if args.n_gpu > 1:
            raise UserError(
                "GatedLoss: found several GPUs in one process; start one for each with torchrun"
            )
        self.roll_back_update()
        if self._takes_epoch:
            try:
                batches = len(kwargs["train_dataloader"])
            except TypeError:
                raise UserError(
                    "GatedLoss: the training data has no length to take the window of one epoch "
                    "from; give window=K, in updates"
                ) from None
            counter = self.objective.counter
            counter.most_slots = MOST_SLOTS
            counter.resize(max(1, math.ceil(batches / args.gradient_accumulation_steps)))
        schedule = kwargs["lr_scheduler"]
        schedule = getattr(schedule, "scheduler", schedule)  # of accelerate, around that of torch
        saved = vars(schedule).get(STATE)
        if state.global_step > 0 and isinstance(saved, Mapping):
            self.load_state_dict(saved)
        elif state.global_step > 0:
            logger.warning(
                "GatedLoss: found no counts in the scheduler.pt of the checkpoint, which was made "
                "without GatedLoss or by an older one; the window of counts starts empty"
            )
        vars(schedule)[STATE] = _Saved(self)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends an update."""
        if getattr(kwargs.get("optimizer"), "step_was_skipped", False):
            self.roll_back_update()
        else:
            self.commit_update()


ATTACHED = "_gated_loss"


class _Attached:
    """The attribute of a model with a GatedLoss; a copy has no GatedLoss."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.gated: GatedLoss | None = None
        self.before = before  # the attribute `forward` of the instance, if it had one

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Attached":
        return _Attached(copy.deepcopy(self.before, memo))  # a bound method, then of the copy

    def __reduce__(self) -> tuple[Any, ...]:
        if self.gated is not None:
            logger.warning("GatedLoss: the saved model is without it; make one after loading")
        return type(None), ()


class _Saved:
    """An attribute of a schedule, whose `state_dict` has all of them; pickled as `state_dict()` of
    a GatedLoss at that time."""

    def __init__(self, gated: GatedLoss) -> None:
        self.gated = gated

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.gated.state_dict().items())


def _attached(model: nn.Module) -> GatedLoss | None:
    gated = getattr(getattr(model, ATTACHED, None), "gated", None)
    return gated if gated is not None and gated.model is model else None


@functools.cache
def _gated_forward(model_class: type[nn.Module]) -> Callable[..., Any]:
    """Takes the place of `forward` in the attributes of an instance, since PEFT calls
    `model.forward(…)` itself, without hooks."""

    def forward(model: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        gated, attached = _attached(model), getattr(model, ATTACHED, None)
        original = getattr(attached, "before", None) or MethodType(type(model).forward, model)
        if gated is None:
            return original(*arguments, **keywords)
        return gated._forward(original, arguments, keywords)

    forward.__signature__ = inspect.signature(model_class.forward)  # which Trainer looks at
    return forward


@contextlib.contextmanager
def _replaced(module: nn.Module, name: str, value: Any) -> Iterator[None]:
    """Gives the instance another attribute for a while, which hides that of its class."""
    attributes = vars(module)
    before = {name: attributes[name]} if name in attributes else {}
    attributes[name] = value
    try:
        yield
    finally:
        del attributes[name]
        attributes.update(before)


def _special_tokens(model: PreTrainedModel, vocabulary: int) -> list[int]:
    """Padding, begin and end of a sequence, by the configuration."""
    config, tokens = model.config.get_text_config(), []
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        tokens += value if isinstance(value, (list, tuple)) else [value]
    return [token for token in tokens if token is not None and 0 <= token < vocabulary]


def _refuse_other_loss(gradient: Tensor) -> None:
    """Called if a gradient reaches the placeholder."""
    raise UserError(
        "GatedLoss: the model computes a term of its loss from the logits outside of "
        "loss_function; switch that off, or this model is not supported"
    )


def _scale_and_cap(placeholder: Tensor, logits: Tensor) -> ScaleAndCap | None:
    """The s and c with `logits = c tanh(s placeholder / c)`; None if there are none."""
    x, z = placeholder.double().flatten(), logits.double().flatten()
    scale, largest = z[0].item() / TINY, abs(z[1].item())
    softcap = largest if largest < 0.5 * abs(scale) * HUGE else None
    expected = scale * x if softcap is None else softcap * torch.tanh(scale * x / softcap)
    return (scale, softcap) if scale and torch.allclose(z, expected, rtol=1e-5, atol=1e-6) else None


def _composed(first: ScaleAndCap, second: ScaleAndCap) -> ScaleAndCap | None:
    """The one after the other; None for two soft caps."""
    (scale, softcap), (factor, bound) = first, second
    if softcap is None:
        return scale * factor, bound
    return (scale * factor, softcap * abs(factor)) if bound is None else None
