"""Gated training of a causal language model of Hugging Face transformers, with its Trainer or in a loop.

    Trainer(model, args, train_dataset=data, callbacks=[GatedLoss(model, agg_rare_fraction=0.05)])

A transformers model computes `logits = lm_head(features)`, then `loss = loss_function(logits, labels, …)`. The logits
are too late for gates, which treat the gradients into features and embedding differently. So in a training step

- a forward pre-hook of the model notes the labels;
- the output layer keeps its input, the features, and returns V known numbers as a placeholder for the logits;
- `loss_function` returns the gated loss of the features, divided as transformers divides its own.

The numbers of the placeholder tell what the model does to its logits between the two. Logits that are scaled or
soft-capped (Granite, Cohere, Gemma 2) arrive as numbers that give the scale and the cap, which the gated loss takes
over; this needs no names from configurations, where `logits_scaling` divides in one model and multiplies in another.
Any other change is refused.

Outside of training steps, in `model.eval()`, under `torch.no_grad()` or without labels, nothing is changed.
"""

import inspect
import logging
import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..errors import UserError
from ..f2 import FactorizedSoftmax
from ..files import atomic_write
from ..functional.log_unigram import checked_counts
from ..functional.log_unigram import log_unigram as log_of_frequencies
from ..objective import AggObjective, AgpsObjective, Objective
from .label_counts import IGNORED

try:
    from transformers import PreTrainedModel, TrainerCallback
    from transformers.loss.loss_utils import ForCausalLMLoss
except ImportError as error:
    raise ImportError(
        f"agg_fairseq.integrations.transformers needs transformers 5 and accelerate ({error}); "
        "pip install '.[transformers]'"
    ) from error

__all__ = ["GatedLoss"]

logger = logging.getLogger(__name__)

METHODS: dict[str, type[Objective]] = {"agg": AggObjective, "agps": AgpsObjective, "mle": Objective}
LOSS = inspect.signature(ForCausalLMLoss)

STATE_FILE = "agg_fairseq.pt"  # the token counts, in the folder of each checkpoint of Trainer
MARK = "agg_fairseq"  # key in Trainer's own state: this run writes `STATE_FILE` into its checkpoints
TINY, HUGE = 2.0**-20, 2.0**40
PROBES = (TINY, HUGE, 1.0, -7.0, 40.0, 0.0, -0.5, 300.0, -HUGE)
"""The numbers that stand for logits: of scaled and capped ones, the first two become the scale and the cap."""


@dataclass
class _Step:
    """A forward pass of a training step."""

    labels: Tensor
    shift_labels: Tensor | None
    target: Tensor  # (B, T), the labels as they are predicted at each position
    features: Tensor | None = None  # (B, T, D), the input of the output layer
    placeholder: Tensor | None = None  # (1, 1, V), its output
    logits: Tensor | None = None  # (1, 1, V), what the model made of the placeholder
    loss: Tensor | None = None  # summed over the targets


class GatedLoss(TrainerCallback):
    """Trains a causal language model of transformers with a gated objective; a callback of Trainer.

    Creating it attaches it to the model, and `remove` takes it off again. Parameters, names and saved files of the
    model stay as they are. In training steps `output.logits` is None.

    With Trainer, the window of AGG is one epoch unless `agg_window` is given. The counts are saved as `agg_fairseq.pt`
    in each checkpoint and restored on resume. In a loop of your own, call `commit_update` after each step of the
    optimizer, and keep `state_dict` in the checkpoint; the window is 1,000 updates unless `agg_window` is given.

    Args:
        model: a decoder-only language model that ends in an `nn.Linear`, tied to the input embedding or not, with or
            without bias, whose logits are not changed afterwards, but for a scale and a soft cap.
        method: "agg", "agps" or "mle".
        log_unigram: (V,) training counts, as of `label_counts`: the output layer gets a bias of their log, which does
            not train (Meister et al. 2022). `save_pretrained` saves it. Where the class of the model has no such bias,
            `integrations.load_pretrained` loads the folder, since `from_pretrained` leaves the bias out.
        resume_from: the folder of a checkpoint, for Trainer to restore the counts from where it resumes from a
            checkpoint outside of its `output_dir`.
        tokenizer: that of the model, a fast one. Its special tokens, the tokens that it holds in reserve, and the rows
            beyond its vocabulary are then never rare either; they are no targets, and would fill the rare group.
        **options: those of `AggObjective` and `AgpsObjective` with the prefix `agg_` or `agps_`, such as
            `agg_rare_fraction=0.3`; those of `Objective`, such as `label_smoothing` and `cosreg_gamma`; and
            `never_rare`, tokens that are never rare, by default the special tokens of the model's configuration
            (padding, begin and end of a sequence).

    Raises:
        UserError: the model is of a kind for which the gated loss would not be right. Some kinds are recognized in the
            first training step.
        ValueError: an option is out of its range, missing, or belongs to another method.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        method: str = "agg",
        *,
        tokenizer: Any = None,
        log_unigram: Tensor | None = None,
        resume_from: str | Path | None = None,
        **options: Any,
    ) -> None:
        _check_model(model)
        self.model = model
        self.head: nn.Linear | FactorizedSoftmax = model.get_output_embeddings()
        vocabulary = self.head.weight.size(0)
        never_rare = {*options.pop("never_rare", _special_tokens(model, vocabulary))}
        if tokenizer is not None:
            backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
            if not hasattr(backend, "to_str"):
                raise UserError(f"GatedLoss: expected a fast tokenizer of transformers, got {type(tokenizer).__name__}")
            known = TokenizerVocabulary.parse(backend.to_str(), Path("tokenizer"), vocabulary)
            never_rare |= {*known.special_ids, *known.unused}
        self.method, self.objective = method, _objective(method, vocabulary, never_rare, options)
        terms = ("ul_alpha", "adv_epsilon", "cosreg_gamma")
        if isinstance(self.head, FactorizedSoftmax) and (method != "mle" or any(map(options.get, terms))):
            raise ValueError(f"a factorized output layer is trained with method='mle', without {', '.join(terms)}")
        self.has_log_unigram = log_unigram is not None
        if self.has_log_unigram:
            if isinstance(self.head, FactorizedSoftmax):
                raise ValueError("found log_unigram with a factorized output layer, without bias; drop one of them")
            counts = checked_counts("log_unigram", log_unigram, vocabulary)
            self.head.bias = nn.Parameter(log_of_frequencies(counts).to(self.head.weight), requires_grad=False)
        self.resume_from = resume_from
        self._window_is_given = options.get("agg_window") is not None
        self._run = uuid.uuid4().hex
        self._step: _Step | None = None
        self._has_loss = False  # has a loss been computed in the update under way?
        self._scale_and_cap: tuple[float, float | None] | None = None  # found in the first training step
        self._signature = inspect.signature(type(model).forward)
        # Attributes of the instances, which hide those of their classes.
        self._replaced = [
            (module, name, vars(module).get(name))
            for module, name in ((self.head, "forward"), (model, "_loss_function"))
        ]
        self._head_forward, self._model_loss = self.head.forward, model.loss_function
        self.head.forward = self._forward_of_head
        model.loss_function = self._loss_of_model
        self._hooks = [
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            model.register_forward_hook(self._after_forward, always_call=True),
        ]

    def remove(self) -> None:
        """Takes the objective off the model, which is then as it was before; a second call does nothing."""
        if not self._hooks:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for module, name, before in self._replaced:
            delattr(module, name)
            if before is not None:
                setattr(module, name, before)

    # A training step, in the order in which the methods are called

    def _before_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._step = None
        if model is not self.model:  # a replica of nn.DataParallel, whose threads would share this object
            raise UserError(
                "GatedLoss: found several GPUs in one process (DataParallel); start one process per GPU with torchrun"
            )
        if not model.training or not torch.is_grad_enabled():
            return
        given = {**self._signature.bind_partial(model, *args).arguments, **kwargs}
        labels, shift_labels = given.get("labels"), given.get("shift_labels")
        if labels is None:
            return
        # Position t predicts label t + 1, unless the caller has shifted the labels already.
        target = F.pad(labels, (0, 1), value=IGNORED)[..., 1:] if shift_labels is None else shift_labels
        self._step = _Step(labels, shift_labels, target)

    def _forward_of_head(self, features: Tensor) -> Tensor:
        """A placeholder for the logits, and at the second call the loss; outside of training the logits (B, T, V)."""
        step = self._step
        if step is None:
            return self._head_forward(features)
        if step.logits is not None:
            scale, softcap = self._scale_and_cap
            target = step.target.to(step.features.device)
            if isinstance(self.head, FactorizedSoftmax):
                smoothing = self.objective.label_smoothing
                step.loss = self.head.loss(step.features, target, label_smoothing=smoothing).loss
            else:
                step.loss = self.objective(
                    step.features, self.head.weight, target, self.head.bias, scale=scale, softcap=softcap
                ).loss
            self._has_loss = True
            return step.loss
        name, weight = type(self.model).__name__, self.head.weight
        expected = (self.objective.vocabulary, features.size(-1))
        if step.features is not None:
            raise UserError(f"GatedLoss: {name} uses its output layer more than once per step; expected once")
        if weight.shape != expected or hasattr(weight, "device_mesh"):
            raise UserError(
                f"GatedLoss: expected an output embedding of shape {expected}, got {tuple(weight.shape)}; resize the "
                "vocabulary before GatedLoss is made, and do not shard this layer"
            )
        if self.method != "mle" and not weight.requires_grad:
            raise UserError(
                "GatedLoss: the output embedding does not train (requires_grad is False), so that there is no gradient "
                "to gate; unfreeze it, or use method='mle'"
            )
        if step.target.shape != features.shape[:-1]:
            raise UserError(
                f"GatedLoss: found features at {tuple(features.shape[:-1])}, labels at {tuple(step.target.shape)}; "
                "expected the same positions; leave out logits_to_keep in training"
            )
        vocabulary = self.objective.vocabulary
        numbers = torch.tensor(PROBES, dtype=torch.promote_types(features.dtype, torch.float32))
        numbers = numbers.repeat(-(-vocabulary // len(PROBES)))[:vocabulary]  # V
        step.features, step.placeholder = features, numbers.view(1, 1, -1).to(features.device)
        return step.placeholder.clone()  # which the model may change in place

    def _loss_of_model(self, *arguments: Any, **options: Any) -> Tensor:
        """What stands in the place of `loss_function`; the arguments are those of `ForCausalLMLoss`."""
        step = self._step
        if step is None:
            return self._model_loss(*arguments, **options)
        bound = LOSS.bind(*arguments, **options)
        bound.apply_defaults()
        logits, number = bound.arguments["logits"], bound.arguments["num_items_in_batch"]
        name = type(self.model).__name__
        if step.features is None or step.logits is not None:
            raise UserError(
                f"GatedLoss: {name} does not compute its loss from its output layer, once; it is not supported"
            )
        if self._scale_and_cap is None:
            self._scale_and_cap = _scale_and_cap(step.placeholder, logits)
        needs_logits_as_they_are = self.has_log_unigram or isinstance(self.head, FactorizedSoftmax)
        if needs_logits_as_they_are and self._scale_and_cap != (1.0, None):
            raise UserError(f"GatedLoss: {name} changes its logits; expected no log_unigram, and no factorized layer")
        if logits.shape != step.placeholder.shape or self._scale_and_cap is None:
            raise UserError(
                f"GatedLoss: {name} changes its logits after the output layer in another way than by a scale and a "
                "soft cap; it is not supported"
            )
        is_same = all(_is_same(bound.arguments[key], getattr(step, key)) for key in ("labels", "shift_labels"))
        if not is_same or bound.arguments["ignore_index"] != IGNORED:
            raise UserError(
                f"GatedLoss: {name} computes its loss from other labels than it was given, or ignores another label "
                f"than {IGNORED}; it is not supported"
            )
        step.logits = logits
        self.head(step.features)  # computes the loss inside of the output layer, where FSDP has gathered W
        number = (step.target != IGNORED).sum() if number is None else number
        return step.loss / (number.to(step.loss.device) if torch.is_tensor(number) else number)

    def _after_forward(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """Takes the placeholder out of the output, where it would pass for logits."""
        step, self._step = self._step, None
        if step is None or output is None:  # None: the forward pass raised an error
            return None
        if step.logits is None:
            raise UserError(
                f"GatedLoss: {type(model).__name__} computed its loss by itself (without its output layer or "
                "loss_function, as fused losses such as Liger's do); switch that off, or this model is not supported"
            )
        if isinstance(output, tuple):
            return tuple(None if part is step.logits else part for part in output)
        return type(output)(**{key: value for key, value in output.items() if value is not step.logits})

    # The updates of a training

    def commit_update(self) -> None:
        """Ends an update in a loop of your own, as `Objective.commit_update`; Trainer needs no such call."""
        self._has_loss = False
        self.objective.commit_update()

    def roll_back_update(self) -> None:
        """As `Objective.roll_back_update`, in place of `commit_update`."""
        self._has_loss = False
        self.objective.roll_back_update()

    def state_dict(self) -> dict[str, Any]:
        """The counts, for the checkpoint of a loop of your own: tensors and numbers only."""
        described = {"method": self.method, "vocabulary": self.objective.vocabulary, "counter": None}
        return described | self.objective.checkpoint_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, but for the window, which is as the options say.

        The state of a method without counts leaves the window empty. ValueError for one of another vocabulary.
        """
        if not isinstance(state, dict) or "counter" not in state:
            raise ValueError("GatedLoss: expected a state that it has saved")
        if (counter := self.objective.counter) is not None:
            window = counter.window
            self.objective.load_checkpoint_state(state)
            counter.resize(window)
            self.objective.start_update()

    # The events of Trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Sets the window, and restores it where Trainer resumes from a checkpoint."""
        if self.objective.counter is None:
            return
        self.roll_back_update()
        if not self._window_is_given:
            try:
                batches = len(kwargs["train_dataloader"])
            except TypeError:
                raise UserError(
                    "GatedLoss: the training data has no length to take the window of one epoch from; give "
                    "agg_window=K, in updates"
                ) from None
            self.objective.counter.resize(max(1, math.ceil(batches / args.gradient_accumulation_steps)))
        mark = state.stateful_callbacks.get(MARK)
        if state.global_step > 0 and mark is None:
            logger.warning("GatedLoss: the checkpoint was made without GatedLoss; the window of counts starts empty")
        elif state.global_step > 0:
            self._restore(args, state.global_step, mark["attributes"]["run"])
        state.stateful_callbacks[MARK] = {"args": {}, "attributes": {"run": self._run}}

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins an update."""
        self.roll_back_update()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends an update."""
        if not self._has_loss:
            raise UserError(
                "GatedLoss: Trainer computes the loss outside of the model that GatedLoss was made with; leave out "
                "compute_loss_func, an overridden compute_loss, and label_smoothing_factor (give GatedLoss its own)"
            )
        if getattr(kwargs.get("optimizer"), "step_was_skipped", False):
            self.roll_back_update()
        else:
            self.commit_update()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Writes the counts beside the checkpoint."""
        if self.objective.counter is None or not args.should_save:
            return
        folder = _checkpoint_folder(args, state.global_step)
        if not folder.is_dir():  # the trials of a hyperparameter search have folders that callbacks are not told
            logger.warning(f"GatedLoss: found no {folder}; the token counts are not saved")
            return
        saved = {"run": self._run, "update": state.global_step, "state": self.state_dict()}
        atomic_write(folder / STATE_FILE, lambda temporary: torch.save(saved, temporary))

    def _restore(self, args: Any, update: int, run: str) -> None:
        """Loads the counts that belong to the checkpoint which Trainer has loaded."""
        folder = self.resume_from or args.resume_from_checkpoint or _checkpoint_folder(args, update)
        path = Path(folder) / STATE_FILE
        remedy = "give GatedLoss(…, resume_from=FOLDER), the folder of the checkpoint that Trainer resumes from"
        if not path.is_file():
            raise UserError(f"GatedLoss: found no {path} to restore the token counts from; {remedy}")
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            origin = saved["run"], saved.get("update", update)  # files of version 0.2.0 lack the update
            if origin == (run, update):
                self.load_state_dict(saved["state"])
        except Exception as error:  # of whatever kind a damaged file causes
            message = f"GatedLoss: cannot restore the token counts from {path}: {error}"
            raise UserError(message.split("\n")[0]) from error
        if origin != (run, update):
            owner = "another training" if origin[0] != run else f"update {origin[1]}, not to {update}"
            raise UserError(f"GatedLoss: {path} belongs to {owner}; {remedy}")


def _check_model(model: Any) -> None:
    """Refuses the models for which the gated loss would not be the loss of the model, as far as it can be told."""
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise UserError(f"GatedLoss: expected a model of transformers, got {name}")
    head = model.get_output_embeddings()
    if isinstance(getattr(model.__dict__.get("_loss_function"), "__self__", None), GatedLoss):
        raise UserError(f"GatedLoss: this {name} already has one; remove() it first")
    forwards = [vars(owner)["forward"] for owner in type(model).__mro__ if "forward" in vars(owner)]
    uses_loss = any("loss_function" in inspect.unwrap(forward).__code__.co_names for forward in forwards)
    is_decoder = not model.config.is_encoder_decoder and head is not None
    if not is_decoder or not uses_loss or model.loss_function is not ForCausalLMLoss:
        raise UserError(
            f"GatedLoss: expected a decoder-only language model with transformers' own loss (…ForCausalLM), got {name}"
        )
    if type(head) not in (nn.Linear, FactorizedSoftmax):
        raise UserError(f"GatedLoss: expected {name} to end in an nn.Linear, found {type(head).__name__}")
    if (getattr(model, "tp_size", None) or 1) > 1:
        raise UserError("GatedLoss: tensor parallelism is not supported; load the model without tp_plan")


def _objective(method: str, vocabulary: int, never_rare: Iterable[int], options: dict[str, Any]) -> Objective:
    """The objective of a method, from options that may begin with its name; None is as if it were left out."""
    if method not in METHODS:
        raise ValueError(f"expected method to be one of {', '.join(METHODS)}, got {method!r}")
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name.startswith(tuple(f"{other}_" for other in METHODS if other != method)):
            raise ValueError(f"found {name}, but method is {method!r}; drop one of them")
    given = {name.removeprefix(f"{method}_"): value for name, value in given.items()}
    if method != "mle":
        given["never_rare"] = mask = torch.zeros(vocabulary, dtype=torch.bool)
        for token in never_rare:
            if not 0 <= token < vocabulary:
                raise ValueError(f"expected never_rare tokens in [0, {vocabulary}), got {token}")
            mask[token] = True
    return METHODS[method](vocabulary, ignore_index=IGNORED, **given)


def _special_tokens(model: PreTrainedModel, vocabulary: int) -> list[int]:
    """The tokens of the configuration that mark padding and the begin and end of a sequence."""
    config = model.config.get_text_config()
    tokens: set[int] = set()
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        value = getattr(config, name, None)
        tokens.update(value if isinstance(value, (list, tuple)) else [value])
    return sorted(token for token in tokens - {None} if 0 <= token < vocabulary)


@torch.compiler.disable  # which would warn of the numbers that it reads
def _scale_and_cap(placeholder: Tensor, logits: Tensor) -> tuple[float, float | None] | None:
    """The s and c, or None, with `logits = c tanh(s placeholder / c)`; None if the model did anything else."""
    x, z = placeholder.double().flatten(), logits.double().flatten()
    if x.shape != z.shape:
        return None
    scale, largest = z[0].item() / TINY, abs(z[1].item())
    softcap = largest if largest < 0.5 * abs(scale) * HUGE else None
    expected = scale * x if softcap is None else softcap * torch.tanh(scale * x / softcap)
    return (scale, softcap) if scale and torch.allclose(z, expected, rtol=1e-5, atol=1e-6) else None


def _is_same(given: Tensor | None, expected: Tensor | None) -> bool:
    both = given is not None and expected is not None
    return given is expected or (both and torch.equal(given, expected.to(given.device)))


def _checkpoint_folder(args: Any, update: int) -> Path:
    return Path(args.output_dir) / f"checkpoint-{update}"
