"""AWD-LSTM, the language model of Merity, Keskar & Socher (ICLR 2018), up to its output layer, in
plain PyTorch."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

# for each layer its hidden state and its cell state, (B, H_l) each
State = tuple[tuple[Tensor, Tensor], ...]


class LSTMDropout(NamedTuple):
    """Dropout probabilities, in [0, 1). The defaults are those of the paper for WikiText-2."""

    # of whole words: the same words are zero at all positions of a batch (Sec. 4.3)
    embedding: float = 0.1
    # of the input of the first layer, locked: one mask for all positions of a row (Sec. 4.2)
    input: float = 0.65
    hidden: float = 0.2  # of the output of each layer but the last, locked
    output: float = 0.4  # of the output of the last layer, locked
    # of the entries of the recurrent matrices, once for all positions of a batch (DropConnect)
    weight: float = 0.5


def locked_dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Dropout of x (T, B, H) with the same mask at all positions; what is kept is divided by 1 −
    probability."""
    if not training or not probability:
        return x
    keep = 1 - probability
    return x * torch.empty_like(x[:1]).bernoulli_(keep).div_(keep)


def embedding_dropout(tokens: Tensor, weight: Tensor, probability: float, training: bool) -> Tensor:
    """Embeddings (..., D) of tokens (...) by a matrix (V, D) whose rows are dropped, without a copy
    of the matrix."""
    embedded = functional.embedding(tokens, weight)
    if not training or not probability:
        return embedded
    keep = 1 - probability
    rows = torch.empty_like(weight[:, :1]).bernoulli_(keep).div_(keep)  # V x 1
    return embedded * functional.embedding(tokens, rows)


class AwdLSTM(nn.Module):
    """Layers of an LSTM with weight dropout, between tied embeddings: the last layer has the size
    of an embedding.

    Args:
        embed_dim: D, size of the embeddings, of the input of the first layer and of the output of
            the last.
        hidden_size: size of the layers in between.
        layers: number of layers.
        dropout: probabilities.

    Reference: Merity et al. (2018), Sec. 2 and 4; the masks and sizes are those of the authors'
        code.
    """

    def __init__(self, embed_dim: int, hidden_size: int, layers: int, dropout: LSTMDropout) -> None:
        super().__init__()
        sizes = [embed_dim, *[hidden_size] * (layers - 1), embed_dim]
        self.layers = nn.ModuleList(nn.LSTM(sizes[i], sizes[i + 1]) for i in range(layers))
        self.dropout = dropout

    def forward(
        self, tokens: Tensor, embedding: Tensor, state: State | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Runs the layers over a batch.

        Args:
            tokens: (B, T) in [0, V).
            embedding: (V, D).
            state: at the end of the text that precedes each row; None: zeros.

        Returns:
            (B, T, D), the features after dropout, which the output layer multiplies; (B, T, D), the
            outputs of the last layer before dropout; the state after the last position, with the
            history of its gradient.
        """
        p, training = self.dropout, self.training
        x = embedding_dropout(tokens.t(), embedding, p.embedding, training)  # T x B x D
        x = locked_dropout(x, p.input, training)
        after = []
        for number, layer in enumerate(self.layers):
            hidden = x.new_zeros(x.size(1), layer.hidden_size)
            start = (hidden, hidden) if state is None else state[number]
            recurrent = functional.dropout(layer.weight_hh_l0, p.weight, training)
            # What `nn.LSTM` calls with its own weights.
            weights = (layer.weight_ih_l0, recurrent, layer.bias_ih_l0, layer.bias_hh_l0)
            # has biases, layers, dropout, …, directions, layout
            of_one_layer = (True, 1, 0.0, training, False, False)
            x, h, c = torch.lstm(x, (start[0][None], start[1][None]), weights, *of_one_layer)
            after.append((h[0], c[0]))
            raw = x
            x = locked_dropout(x, p.output if layer is self.layers[-1] else p.hidden, training)
        return x.transpose(0, 1), raw.transpose(0, 1), tuple(after)


def activation_penalty(
    dropped: Tensor, raw: Tensor, is_token: Tensor, *, alpha: float, beta: float
) -> Tensor:
    r"""Activation and temporal activation regularization (Merity et al. 2018, Sec. 4.6).

    `α · mean (m ⊙ h_t)² + β · mean (h_{t+1} − h_t)²`, over positions and units: the paper writes L2
    norms, and the authors' code takes the mean of the squares, as is done here.

    Args:
        dropped: (B, T, D) m ⊙ h, the outputs of the last layer after dropout.
        raw: (B, T, D) h, before dropout.
        is_token: (B, T) bool, the positions that are not padding; the others follow after them.
        alpha, beta: weights of the size of the activations, and of their change from one position
        to the next.

    Returns:
        A scalar, in nats per token.
    """
    pairs = is_token[:, 1:]
    size = (dropped.float().square().mean(-1) * is_token).sum() / is_token.sum()
    change = (
        (raw[:, 1:] - raw[:, :-1]).float().square().mean(-1) * pairs
    ).sum() / pairs.sum().clamp(min=1)
    return alpha * size + beta * change
