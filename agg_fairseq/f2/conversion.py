"""A model with the factorized output layer, made of one that was trained with the ordinary softmax (Choi, App. C).

W is kept. Inside a class the factorized softmax is then equal to the ordinary one, p2(k | c, h) = P(k | h) / Σ_c P, and
only the probability of the class can differ. For every h,

    KL(P ‖ p) = KL(q ‖ p1),        q_c(h) = Σ_{k in c} P(k | h)

so the closest factorized distribution is a multinomial logistic regression of the soft labels q on h: convex in U,
with gradient `(p1 − q)ᵀ H / N`. It is fitted on features of real text. The fit starts from the first-order solution:
around the training frequencies f, log Σ_{k in c} exp(h·w_k) changes with h as h·ū_c does, where ū_c is the mean of the
class's rows of W weighted by f.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..data.binarized import training_counts
from ..evaluation.inputs import find_device
from ..files import atomic_write, check_writable
from ..functional import gated_cross_entropy
from ..functional.early_gradients import CHUNK_ELEMENTS, working_dtype
from ..result import Result
from .cross_entropy import class_log_prob, linear, log_sum_exp
from .frequency_classes import assign_classes
from .token_classes import TokenClasses

POSITIONS = 50_000  # of targets, to fit on; at least as many, in whole batches, are measured on
FACTORIZED = {"transformer_lm": "transformer_lm_f2", "transformer": "transformer_f2"}


def convert_to_f2(
    model: Checkpoint,
    data: str | Path,
    output: str | Path,
    *,
    f2_assignment: str = "mefmax",
    f2_classes: int = 0,
    device: str | None = None,
) -> Result:
    """Converts a model that was trained with the ordinary softmax into one with the factorized output layer.

    The embeddings of the tokens are kept, so that inside each frequency class the new model predicts the same
    probabilities as the old one. The embeddings of the classes are fitted on the training split, so that the joint
    distribution is as close to the softmax as possible in KL divergence.

    Args:
        model: a `transformer` or `transformer_lm` with the ordinary softmax.
        data: folder written by `fairseq-preprocess`, with the training and the validation split.
        output: checkpoint to write.
        f2_assignment: how tokens are assigned to frequency classes, one of `ASSIGNMENTS`; mefmax chooses
            the number of classes.
        f2_classes: number of classes; 0 with mefmax, required by the others.
        device: cpu, cuda, cuda:1, …; None: a GPU if there is one.

    Returns:
        Result: for the ordinary softmax, for the `mean` of each class's tokens, where the fit starts, and for the
        `fitted` embeddings, `kl`, the KL divergence from the softmax, and `nll`, both in nats per position, and
        `perplexity`. Facts: `sizes` of the classes, and `positions` that were measured.

    Reference: Choi et al. (2020), App. C.
    """
    from ..models.from_checkpoint import build_model, sibling_state  # imports fairseq

    check_writable(output, model.path)
    options = {"f2_assignment": f2_assignment, "f2_classes": f2_classes, "f2_decoding": "joint"}
    state = sibling_state(model, FACTORIZED, "transformer_lm or transformer with the ordinary softmax", **options)
    torch_device = find_device(device)
    network, task = build_model(model, data)
    network.to(torch_device)
    counts = training_counts(task, "train")
    of_token = assign_classes(f2_assignment, f2_classes, counts)
    weight = network.decoder.output_projection.weight.detach()
    token_classes = TokenClasses.of(of_token.to(torch_device))
    features = _features(network, task, "train")[0][:POSITIONS]
    start = mean_class_embeddings(weight, counts.to(torch_device), token_classes)
    fitted = fit_class_embeddings(features, class_log_mass(features, weight, token_classes), start)
    measured = _features(network, task, "valid")
    rows = _measure(*measured, weight, token_classes, {"mean": start, "fitted": fitted})
    layer = "decoder.output_projection"
    saved = model.parameters.get(f"{layer}.weight", weight)
    state["model"] = {
        **model.parameters,
        f"{layer}.weight": saved,
        f"{layer}.class_weight": fitted.cpu().to(saved.dtype),
        f"{layer}.class_of_token": of_token.float(),  # as the module saves them
    }
    # A criterion that such a model can be trained and validated with.
    if state["cfg"]:
        smoothing = model.criterion_options.get("label_smoothing", 0.0)
        state["cfg"]["criterion"] = {"_name": "f2_softmax", "label_smoothing": smoothing}
    else:
        state["args"].criterion = "f2_softmax"
    atomic_write(output, lambda temporary: torch.save(state, temporary))

    return Result(
        rows=rows,
        columns={"kl": [""], "perplexity": ["total"]},
        settings={
            "classes": token_classes.number,
            "assignment": f2_assignment,
            "fitted-on": f"train,{len(features)}",
            "measured-on": f"valid,{len(measured[1])}",
        },
        facts={"sizes": list(token_classes.sizes), "positions": len(measured[1])},
        labels=("class embeddings",),
    )


@torch.no_grad()
def _features(model: nn.Module, task: Any, split: str) -> tuple[Tensor, Tensor]:
    """Features (N, D) and targets (N,) of shuffled batches of a split, until there are `POSITIONS`."""
    from fairseq import utils

    task.load_dataset(split)
    batches = task.get_batch_iterator(
        task.dataset(split),
        max_tokens=4096,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        ignore_invalid_inputs=True,
        seed=1,
    ).next_epoch_itr(shuffle=True)
    device, pad = next(model.parameters()).device, task.target_dictionary.pad()
    features, targets = [], []
    for sample in batches:
        sample = utils.move_to_cuda(sample, device=device) if device.type == "cuda" else sample
        is_target = sample["target"] != pad  # B x T
        features.append(model(**sample["net_input"], features_only=True)[0][is_target])
        targets.append(sample["target"][is_target])
        if sum(map(len, targets)) >= POSITIONS:
            break
    return torch.cat(features), torch.cat(targets)


@torch.no_grad()
def _measure(
    features: Tensor, target: Tensor, weight: Tensor, classes: TokenClasses, candidates: Mapping[str, Tensor]
) -> dict[str, dict[str, Any]]:
    """Of H (N, D), y (N,) and W, for the softmax and each candidate U: KL(P ‖ p), NLL, both in nats, perplexity."""
    log_mass = class_log_mass(features, weight, classes)  # N x C
    nll = gated_cross_entropy(features, weight, target).nll.double()  # N
    measured = {"none: the ordinary softmax": (0.0, nll)}
    for name, class_weight in candidates.items():
        # p differs from P in the probability of the target's class only: −log p = −log P + log q_c − log p1_c
        log_p1 = class_log_prob(features, class_weight)  # N x C
        moved = (log_mass - log_p1).gather(1, classes.of_token[target][:, None]).squeeze(1)  # N
        measured[name] = kl_to_classes(features, class_weight, log_mass).item(), nll + moved
    return {
        name: {"kl": kl, "nll": of_name.mean().item(), "perplexity": {"total": of_name.mean().exp().item()}}
        for name, (kl, of_name) in measured.items()
    }


def class_log_mass(features: Tensor, weight: Tensor, classes: TokenClasses) -> Tensor:
    """log q (N, C), the probability that an ordinary softmax gives to each class, from H (N, D) and W (V, D).

    It is normalized, at least float32, and takes the memory of `CHUNK_ELEMENTS` logits, at least one row of V.
    """
    log_mass = []
    for chunk in features.split(max(1, CHUNK_ELEMENTS // classes.vocabulary)):
        logits = linear(chunk, weight).to(working_dtype(features))  # n x V
        log_mass.append(torch.stack([log_sum_exp(logits, blocks) for blocks in classes.blocks], 1))  # n x C
    return torch.cat(log_mass).log_softmax(1)


def mean_class_embeddings(weight: Tensor, counts: Tensor, classes: TokenClasses) -> Tensor:
    """(C, D), each class's mean row of W (V, D), weighted by training counts (V,), or unweighted where none occurs."""
    share = counts.to(weight)
    mass = share.new_zeros(classes.number).index_add_(0, classes.of_token, share)  # C
    size = share.new_tensor(classes.sizes)
    share = torch.where(mass[classes.of_token] > 0, share / mass[classes.of_token], 1 / size[classes.of_token])
    return weight.new_zeros(classes.number, weight.size(1)).index_add_(0, classes.of_token, share[:, None] * weight)


def fit_class_embeddings(features: Tensor, log_mass: Tensor, start: Tensor) -> Tensor:
    """Fits U (C, D) by L-BFGS, so that p1 is closest to the mass of the classes under the ordinary softmax.

    From H (N, D), N well above D, log q (N, C) of `class_log_mass`, and the U to start from, whose dtype the result
    has.
    """
    dtype = working_dtype(features)
    features, log_q = features.to(dtype), log_mass.to(dtype)
    class_weight = start.to(dtype).clone().requires_grad_()
    optimizer = torch.optim.LBFGS([class_weight], max_iter=200, line_search_fn="strong_wolfe")

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = kl_to_classes(features, class_weight, log_q)
        loss.backward()
        return loss

    optimizer.step(evaluate)
    return class_weight.detach().to(start.dtype)


def kl_to_classes(features: Tensor, class_weight: Tensor, log_mass: Tensor) -> Tensor:
    """KL(q ‖ p1), the mean over positions in nats, for H (N, D), U (C, D) and log q (N, C); differentiable in U."""
    log_p1 = class_log_prob(features, class_weight)
    return F.kl_div(log_p1, log_mass, reduction="batchmean", log_target=True)
