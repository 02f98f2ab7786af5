"""`--arch awd_lstm_lm`: the AWD-LSTM of Merity, Keskar & Socher (ICLR 2018) as a language model of
fairseq."""

from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel, register_model
from torch import Tensor, nn

from agg_fairseq.fairseq_plugin import option

from .modules import AwdLSTM, LSTMDropout, State, activation_penalty

STATE = "state"


@dataclass
class AwdLSTMLanguageModelConfig(FairseqDataclass):
    """Options of `--arch awd_lstm_lm`. The defaults are those of the authors for WikiText-2."""

    decoder_embed_dim: int = option(400, "size of the tied embeddings, and of the last layer")
    decoder_hidden_size: int = option(1150, "size of the other layers")
    decoder_layers: int = option(3, "number of layers")
    dropout_embedding: float = option(0.1, "probability that a word is dropped as an input")
    dropout_input: float = option(0.65, "locked dropout of the input of the first layer")
    dropout_hidden: float = option(0.2, "locked dropout of the outputs of the other layers")
    dropout_output: float = option(0.4, "locked dropout of the output of the last layer")
    dropout_weight: float = option(0.5, "dropout of entries of the recurrent matrices")
    activation_penalty: float = option(
        2.0, "weight of the mean square of the activations of the last layer (AR)"
    )
    temporal_penalty: float = option(
        1.0, "weight of the mean square of differences of adjacent activations (TAR)"
    )


class AwdLSTMDecoder(FairseqIncrementalDecoder):
    """The layers between tied embeddings; the output layer has a bias.

    Attributes:
        carried: the state at the end of the last batch, by `training`, so that validation leaves
            the one of training alone. A batch begins with it if it is told so, and else with zeros.
        penalty: activation regularization of the last training batch, a scalar in nats per token,
            which the task adds to the loss of any criterion.
    """

    def __init__(
        self, dictionary: Any, options: AwdLSTMLanguageModelConfig, dropout: LSTMDropout
    ) -> None:
        super().__init__(dictionary)
        size = options.decoder_embed_dim
        self.embed_tokens = nn.Embedding(len(dictionary), size)
        self.lstm = AwdLSTM(size, options.decoder_hidden_size, options.decoder_layers, dropout)
        self.output_projection = nn.Linear(size, len(dictionary))
        nn.init.uniform_(self.embed_tokens.weight, -0.1, 0.1)
        nn.init.zeros_(self.output_projection.bias)
        self.output_projection.weight = self.embed_tokens.weight
        self.alpha, self.beta = options.activation_penalty, options.temporal_penalty
        self.carried: dict[bool, State] = {}
        self.penalty: Tensor | None = None

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        continues: bool | None = None,
        src_lengths: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Logits (B, T, V), or with `features_only` features (B, T, D), of tokens (B, T), padded on
        the right.

        With the `incremental_state` of a generation, which passes all tokens so far, only the last
        one is read. `continues`: does each row go on from the same row of the batch before? If
        there was none, it begins with zeros.
        None: a text by itself, whose state is not kept; in training, the kept one is dropped, too.
        """
        tokens, state = prev_output_tokens, self.carried.get(self.training) if continues else None
        if incremental_state is not None:
            saved = self.get_incremental_state(incremental_state, STATE)
            tokens = tokens[:, -1:]
            state = None if saved is None else tuple(zip(saved["h"], saved["c"], strict=True))
        features, raw, after = self.lstm(tokens, self.embed_tokens.weight, state)
        if incremental_state is not None:
            h, c = zip(*after, strict=True)
            self.set_incremental_state(incremental_state, STATE, {"h": list(h), "c": list(c)})
        elif continues is not None:
            self.carried = {
                **self.carried,
                self.training: tuple((h.detach(), c.detach()) for h, c in after),
            }
        elif self.training:
            self.carried.pop(True, None)
        self.penalty = None
        if self.training and (self.alpha or self.beta):
            is_token = tokens != self.dictionary.pad()
            self.penalty = activation_penalty(
                features, raw, is_token, alpha=self.alpha, beta=self.beta
            )
        return (features if features_only else self.output_layer(features)), {}

    def output_layer(self, features: Tensor) -> Tensor:
        return self.output_projection(features)

    def reorder_incremental_state(
        self, incremental_state: dict[str, Any], new_order: Tensor
    ) -> None:
        saved = self.get_incremental_state(incremental_state, STATE)
        if saved is not None:
            order = {
                name: [part.index_select(0, new_order) for part in parts]
                for name, parts in saved.items()
            }
            self.set_incremental_state(incremental_state, STATE, order)

    def max_positions(self) -> int:
        return 100_000


@register_model("awd_lstm_lm", dataclass=AwdLSTMLanguageModelConfig)
class AwdLSTMLanguageModel(FairseqLanguageModel):
    """AWD-LSTM. Train it with `--task language_modeling_streams --optimizer nt_asgd`."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "AwdLSTMLanguageModel":
        dropout = LSTMDropout(*(getattr(args, f"dropout_{name}") for name in LSTMDropout._fields))
        return cls(AwdLSTMDecoder(task.target_dictionary, args, dropout))
