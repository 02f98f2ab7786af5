"""Chunked gated cross-entropy, which runs everywhere: the gradients of a chunk of logits are computed with its loss."""

import torch
from torch import Tensor

from ..gates import Gates
from ..loss_core import CHUNK_ELEMENTS, Options, Outputs, Wanted, working_dtype


class ChunkedLoss:
    """One forward pass: fills outputs and gradients chunk by chunk, from inputs in the dtype of the products.

    Both start as zeros, which is what ignored positions are to have.
    """

    def __init__(
        self, features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, options: Options, wanted: Wanted
    ) -> None:
        dtype = working_dtype(features)
        zeros = features.new_zeros(target.shape, dtype=dtype)

        def values(are_wanted: bool) -> Tensor:
            """(N,) zeros to fill; of a term that is not formed, a single zero in the shape (N,), without memory."""
            return zeros.clone() if are_wanted else zeros.new_zeros(()).expand_as(zeros)

        def gradient(tensor: Tensor | None, is_wanted: bool) -> Tensor | None:
            """Zeros in the shape of `tensor`, to sum its gradient in; None if it has none, or none is asked for."""
            return torch.zeros_like(tensor, dtype=dtype) if tensor is not None and is_wanted else None

        self.features = features.detach()  # (N, D)
        self.weight = weight.detach().to(self.product_dtype(features))  # (V, D)
        self.bias = None if bias is None else bias.detach().to(dtype)  # (V,)
        self.target, self.options = target, options  # (N,)
        self.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)  # as they were given
        self.outputs = Outputs(
            nll=zeros,
            losses=zeros.clone(),
            unlikelihood=values(options.unlikelihood is not None),
            z_loss=values(options.z_loss > 0),
            adversarial=values(options.adversarial > 0),
            prediction=torch.zeros_like(target) if options.predict else None,
        )
        self.grad_features = gradient(features, wanted.features)  # (N, D)
        self.grad_weight = gradient(weight, wanted.weight)  # (V, D)
        self.grad_bias = gradient(bias, wanted.bias)  # (V,)

    @staticmethod
    def product_dtype(features: Tensor) -> torch.dtype:
        """The dtype in which the matrix products are formed."""
        return working_dtype(features)

    def run(self) -> None:
        """Fills outputs and gradients. Autocast is off, since the dtypes are chosen here."""
        with torch.autocast(self.features.device.type, enabled=False):
            self._run()

    def _run(self) -> None:
        gates = self.options.gates
        rows = (self.target != self.options.ignore_index).nonzero().squeeze(1)  # n <= N
        if gates is None:
            return self._run_rows(rows)
        # Positions with a common target come first. Their gate does not depend on the position, so it factors out of
        # Σ_i G[i, k] (P − Q)[i, k] H[i] and is applied once to the finished sum, before the rare positions are added.
        is_rare = gates.rare[self.target[rows]]  # n
        self._run_rows(rows[~is_rare])
        gate = gates.at_common_targets(like=self.weight)
        if gate is not None:
            if self.grad_weight is not None:
                self.grad_weight.mul_(gate[:, None])
            if self.grad_bias is not None:
                self.grad_bias.mul_(gate)
        self._run_rows(rows[is_rare], gates)

    def _run_rows(self, rows: Tensor, gates: Gates | None = None) -> None:
        """Runs the positions `rows` in chunks; with `gates`, the rare ones, whose residuals are gated one by one."""
        if not len(rows):
            return
        chunk_rows = self._chunk_rows(len(rows), CHUNK_ELEMENTS)
        buffer = self.weight.new_empty(chunk_rows, self.weight.size(0))  # C x V
        for chunk in rows.split(chunk_rows):
            self._run_chunk(chunk, buffer[: len(chunk)], gates)

    def _chunk_rows(self, rows: int, elements: int) -> int:
        """C, the positions of a chunk of so many logits: at least one, at most all `rows`."""
        return min(max(1, elements // self.weight.size(0)), rows)

    def _run_chunk(self, rows: Tensor, buffer: Tensor, gates: Gates | None) -> None:
        """Adds the positions `rows` (C,) to outputs and gradients; their logits take the memory of `buffer` (C, V)."""
        features = self.features[rows].to(self.weight.dtype)  # C x D
        target = self.target[rows]  # C
        logits = torch.mm(features, self.weight.t(), out=buffer)  # C x V
        margin = None
        if self.options.adversarial:
            # The target's embedding is perturbed by the δ of length ε ‖w_y‖ that lowers its logit most, towards −h, so
            # by m = ε ‖w_y‖ ‖h‖; only where w_y·h > 0. It is the same δ as −(m / ‖h‖²) h.
            at_target = logits.gather(1, target[:, None]).squeeze(1)  # C, w_y·h without the bias
            squared = features.square().sum(1)  # C, ‖h‖²
            margin = self.options.adversarial * self.weight[target].norm(dim=1) * squared.sqrt() * (at_target > 0)
        if self.bias is not None:
            logits.add_(self.bias)
        slope = None
        if (cap := self.options.softcap) is not None:  # z = c tanh(z'/c), whose slope is 1 − (z/c)²
            logits.div_(cap).tanh_()
            slope = 1 - logits.square()  # C x V
            logits.mul_(cap)
        residual = self._residual_(rows, target, logits, margin)  # C x V, in the memory of the logits
        if residual is None:
            return
        if slope is not None:
            residual.mul_(slope)
        if self.grad_features is not None:
            gradient = residual @ self.weight  # C x D
            if margin is not None:  # dz'[y]/dh = w_y + δ, with δ held fixed
                along = residual.gather(1, target[:, None]) * (margin / squared.clamp(min=1e-30))[:, None]
                gradient.addcmul_(along, features, value=-1)
            self.grad_features[rows] = gradient
        gate = None if gates is None else gates.at_rare_targets(like=residual)
        if gate is not None:  # on all but the target's entry, which is put back
            at_target = residual.gather(1, target[:, None])
            residual.mul_(gate).scatter_(1, target[:, None], at_target)
        if self.grad_bias is not None:
            self.grad_bias += residual.sum(0)
        if self.grad_weight is not None:
            self.grad_weight.addmm_(residual.t(), features)

    def _residual_(self, rows: Tensor, target: Tensor, logits: Tensor, margin: Tensor | None) -> Tensor | None:
        """Stores the values of a chunk and turns its logits z (C, V) into dL/dz, in place; None where none is wanted.

        The loss of a position is a sum of terms. Each has a value, and a gradient into the logits that is a multiple of
        P plus entries at a few tokens (or the same number at all tokens):

            term            value                            dL/dz
            likelihood      −ω Σ_k Q[k] log P[k]             ω P − ω Q
            unlikelihood    −α Σ_{c in C} log(1 − P[c])      −α s P + α w      (w and s: see `unlikelihood.py`)
            z-loss          γ log²Z,  log Z = logsumexp z    2γ log Z · P      (d log Z / dz = P)

        with ω the weight of the position and Q the label-smoothed target. So with m the sum of the multiples, the
        gradient is formed as m P − ω Q + α w in the memory of P. A further term adds its value to `outputs.losses` and
        its multiple to m.

        With a `margin` (C,), adversarial training, z is first lowered by it at the target, and all terms are those of
        the lowered logits z' and their P'. What is logged of the model itself stays that of z: the arg-max and, as only
        z[y] = z'[y] + m differs,

            Σ_k exp z[k] = Σ_k exp z'[k] − exp z'[y] + exp(z'[y] + m) = Σ_k exp z'[k] · (1 − P'[y] + P'[y] eᵐ)
            −log P[y] = log Σ_k exp z[k] − z'[y] − m = −log P'[y] − m + log(1 − P'[y] + P'[y] eᵐ)
        """
        options, outputs, vocabulary = self.options, self.outputs, logits.size(1)
        epsilon = options.label_smoothing
        omega = None if options.position_weight is None else options.position_weight[rows].to(logits.dtype)  # C

        if outputs.prediction is not None:
            outputs.prediction[rows] = logits.argmax(1)
        if margin is not None:
            logits.scatter_add_(1, target[:, None], -margin[:, None])
        at_target = logits.gather(1, target[:, None]).squeeze(1)  # C
        largest = logits.amax(1)  # C
        logits_sum = logits.sum(1) if epsilon else None  # C
        probabilities = torch.softmax(logits, 1, out=logits)  # C x V, P

        # The largest probability is exp(max z − logsumexp z), and at least 1/V, so its logarithm is accurate. In
        # −log P[y] = (max z − z[y]) − log max P the logits come first: they cancel exactly where y is the arg-max.
        log_largest = probabilities.amax(1).log()  # C
        logsumexp = largest - log_largest  # C
        nll = (largest - at_target) - log_largest
        outputs.nll[rows] = nll
        if margin is not None:
            outputs.adversarial[rows] = nll
            others = (-torch.expm1(-nll)).log()  # log(1 − P'[y]), −∞ where P'[y] is 1
            outputs.nll[rows] = nll - margin + torch.logaddexp(others, margin - nll)
        losses = nll
        if logits_sum is not None:
            share = epsilon / (vocabulary - 1)  # Q at every token but the target, as in fairseq
            uniform = vocabulary * logsumexp - logits_sum  # −Σ_k log P[k]
            losses = (1 - epsilon - share) * nll + share * uniform
        outputs.losses[rows] = losses if omega is None else losses * omega

        multiple = penalty = at_z = None  # m (C,), where another term than the likelihood has a part in it
        weight = torch.ones_like(nll) if omega is None else omega  # C
        if options.unlikelihood is not None:
            penalty = options.unlikelihood.penalty(rows, target, probabilities)
            outputs.unlikelihood[rows] = penalty.value
            outputs.losses[rows] += options.unlikelihood.weight * penalty.value
            multiple = weight - options.unlikelihood.weight * penalty.odds.sum(1)  # ω − α s
        if options.z_loss:
            squared = logsumexp.square()
            outputs.z_loss[rows] = squared
            outputs.losses[rows] += options.z_loss * squared
            at_z = 2 * options.z_loss * logsumexp  # C
            multiple = (weight if multiple is None else multiple) + at_z

        if self.grad_features is None and self.grad_weight is None and self.grad_bias is None:
            return None
        if multiple is None:  # m = ω: one multiplication of P − Q
            residual = _subtract_targets_(probabilities, target, epsilon)
            return residual if omega is None else residual.mul_(omega[:, None])
        if penalty is not None:
            # At the likeliest token −α s P and α w may be huge and cancel, so this entry is formed separately. The part
            # of the other terms is read here, while the memory still holds P; the penalty's is in `Penalty`.
            elsewhere = probabilities.new_tensor(epsilon / max(vocabulary - 1, 1))
            q = torch.where(penalty.likeliest == target[:, None], 1 - epsilon, elsewhere)  # C x 1
            p = probabilities.gather(1, penalty.likeliest)  # C x 1
            at_likeliest = weight[:, None] * (p - q)
            if at_z is not None:
                at_likeliest += at_z[:, None] * p
        residual = _subtract_targets_(probabilities.mul_(multiple[:, None]), target, epsilon, omega)
        if penalty is not None:
            penalty.add_gradient_(residual, at_likeliest, options.unlikelihood.weight)
        return residual

    def gradients(self) -> list[tuple[Tensor, torch.dtype] | None]:
        """The gradients of features, weight and bias, each with the dtype that autograd expects of it."""
        gradients = (self.grad_features, self.grad_weight, self.grad_bias)
        return [None if g is None else (g, dtype) for g, dtype in zip(gradients, self.dtypes, strict=True)]


def _subtract_targets_(p: Tensor, target: Tensor, label_smoothing: float, omega: Tensor | None = None) -> Tensor:
    """Turns p (C, V) into p − ω Q in place. Q is 1 − ε at the target, ε/(V−1) at all other tokens; ω is (C,) or 1."""
    share = label_smoothing / (p.size(1) - 1) if label_smoothing else 0.0
    weight = p.new_ones(len(target), 1) if omega is None else omega[:, None]  # C x 1
    if label_smoothing:
        p.sub_(share * weight)
    return p.scatter_add_(1, target[:, None], (share + label_smoothing - 1) * weight)
