"""Log-probabilities of every token at each position of a text: teacher-forced, a chunk of positions
at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ..checkpoints import Checkpoint, EmbeddingSource, PretrainedModel
from ..data.binarized import count_tokens, load_dictionary
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import BinarizedVocabulary
from ..errors import UserError
from ..functional.softmax_layer import chunk_rows
from ..integrations import load_pretrained
from .inputs import load_embedding_vocabulary, load_vocabulary

# tokens of a block, where neither the user nor the positions of a model of transformers say less
MAX_BLOCK = 1024
Chunk = tuple[Tensor, Tensor]  # log P (n, V) in nats, and the targets (n,)


@dataclass(frozen=True)
class BinarizedText:
    """A split written by `fairseq-preprocess`, which models of fairseq are scored on.

    Args:
        data: folder with the split, and with the training split, in which tokens are counted.
        split: split to score; a translation model scores its target side.
        tokens_per_sample: tokens per block, its context included; None: as in training. This and
            the next one are not for translation models.
        context_window: tokens of context before each block, which are not scored.
        max_tokens: tokens per batch; None: 2048, or a block where that is longer.
    """

    data: str | Path
    split: str = "test"
    tokens_per_sample: int | None = None
    context_window: int = 0
    max_tokens: int | None = None

    @property
    def name(self) -> str:
        """The name of the text in settings."""
        return self.split

    def load_vocabulary(self, models: Mapping[str, EmbeddingSource]) -> BinarizedVocabulary:
        """The vocabulary of models, which are checked: all of them can read this text, in the same
        way."""
        for model in models.values():
            if not isinstance(model, Checkpoint):
                raise UserError(
                    f"{model}: found a model of transformers; give the text to score by --text FILE"
                )
        vocabulary = load_vocabulary(models, self.data)
        if vocabulary.languages is None:
            self._length(models)
        return vocabulary

    def check(self, vocabulary: BinarizedVocabulary) -> None:
        """Checks that the split is there, and can be read as it was written."""
        # of a parallel split with its side
        file = vocabulary.split.name.replace("train", self.split, 1)
        # fairseq would score what a damaged index says
        count_tokens(self.data, vocabulary.dictionary, file)
        if vocabulary.languages is not None:
            source, target = vocabulary.languages
            dictionary = load_dictionary(self.data, f"dict.{source}.txt")
            count_tokens(self.data, dictionary, f"{file.removesuffix(target)}{source}")

    def settings(
        self, models: Mapping[str, Checkpoint], vocabulary: BinarizedVocabulary
    ) -> dict[str, str | int | None]:
        """Settings of a result that say how the models read the text."""
        if vocabulary.languages is not None:
            return {"pairs": "-".join(vocabulary.languages)}
        return {
            "tokens-per-sample": self._length(models),
            "break": "none",
            "context": self.context_window,
        }

    def score(
        self,
        models: Mapping[str, Checkpoint],
        name: str,
        vocabulary: BinarizedVocabulary,
        device: torch.device,
    ) -> Iterator[Chunk]:
        """The positions that fairseq-eval-lm counts, or the target side of the pairs of a
        translation model."""
        from ..fairseq_plugin.models.from_checkpoint import build_model

        # The positions of the model are those that it was trained with, whatever is scored.
        model, task = build_model(models[name], self.data, {"sample_break_mode": "none"})
        model.to(device)
        if models[name].is_language_model:
            batches = self._blocks(model, task, self._length(models))
        else:
            batches = self._pairs(model, task)
        for sample in tqdm(batches, desc=name, unit="batch", disable=None, leave=False):
            if "net_input" in sample:
                yield from _log_probs(model, task, sample)

    def _blocks(self, model: Any, task: Any, length: int) -> Any:
        """Batches of blocks of a language model; UserError where fairseq-eval-lm leaves out
        some."""
        context, positions = self.context_window, model.max_positions()
        if not context < length <= positions:
            found = (
                f"found {length}, {context} of them context, and {positions} positions of the model"
            )
            raise UserError(
                f"--tokens-per-sample: {found}; expected more than context, at most the positions"
            )
        task.args.tokens_per_sample = length - context
        task.load_dataset(self.split)
        return task.eval_lm_dataloader(
            dataset=task.dataset(self.split),
            num_workers=0,
            context_window=context,
            max_positions=positions,
            max_tokens=self.max_tokens or max(2048, length),
        )

    def _pairs(self, model: Any, task: Any) -> Any:
        """Batches of the pairs of a translation model; UserError if it cannot read some."""
        task.load_dataset(self.split)
        dataset, positions = task.dataset(self.split), model.max_positions()
        _, longer = dataset.filter_indices_by_size(dataset.ordered_indices(), positions)
        if len(longer):
            raise UserError(
                f"{self.split}: found {len(longer)} of {len(dataset)} pairs of more than "
                f"{' or '.join(map(str, positions))} tokens, the positions of the model; expected "
                "a split without them"
            )
        batches = task.get_batch_iterator(
            dataset, max_positions=positions, max_tokens=self.max_tokens or 2048
        )
        return batches.next_epoch_itr(shuffle=False)

    def _length(self, models: Mapping[str, Checkpoint]) -> int:
        if self.tokens_per_sample is not None:
            return self.tokens_per_sample
        trained = (model.task_options.get("tokens_per_sample") or 1024 for model in models.values())
        lengths = list(dict.fromkeys(trained))
        if len(lengths) > 1:
            raise UserError(
                f"found models trained on {lengths} tokens per block; give --tokens-per-sample"
            )
        return lengths[0]


@dataclass(frozen=True)
class PlainText:
    """A file of text in UTF-8, for causal language models of transformers with one tokenizer; as
    `BinarizedText`.

    The text is encoded without special tokens and cut into blocks, of which the first token is not
    scored.

    Args:
        text: file to score.
        train_text: file in which the tokens are counted, for the frequency groups; None if they are
            formed by the occurrences in another text.
        tokens_per_sample: tokens per block; None: the positions of the models, at most 1,024.
    """

    text: str | Path
    train_text: str | Path | None = None
    tokens_per_sample: int | None = None

    @property
    def name(self) -> str:
        """The name of the file in settings."""
        return Path(self.text).name

    def load_vocabulary(self, models: Mapping[str, EmbeddingSource]) -> TokenizerVocabulary:
        """The vocabulary of models, which are checked: all of them can read this text, in the same
        way."""
        for model in models.values():
            if not isinstance(model, PretrainedModel):
                raise UserError(
                    f"{model}: found a model of fairseq; give the text to score by --data"
                )
        vocabulary = load_embedding_vocabulary(models, None, self.train_text)
        self._length(models)
        return vocabulary

    def check(self, vocabulary: TokenizerVocabulary) -> None:
        """Checks that the text can be read, and has a block with a target."""
        if len(self._tokens(vocabulary)) < 2:
            raise UserError(f"{self.text}: found fewer than 2 tokens; expected a text to score")

    def settings(
        self, models: Mapping[str, PretrainedModel], vocabulary: TokenizerVocabulary
    ) -> dict[str, str | int | None]:
        """Settings of a result that say how the models read the text."""
        return {
            "tokens-per-sample": self._length(models),
            "counted-in": None if self.train_text is None else Path(self.train_text).name,
            "dtype": "float32",
        }

    @torch.no_grad()
    def score(
        self,
        models: Mapping[str, PretrainedModel],
        name: str,
        vocabulary: TokenizerVocabulary,
        device: torch.device,
    ) -> Iterator[Chunk]:
        """All tokens but the first of each block; so their mean is the loss of transformers over
        the same blocks."""
        model, length = models[name], self._length(models)
        network = load_pretrained(model.path, dtype=torch.float32)  # in whatever it was saved
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL,
        )

        # A masked model also has logits for all tokens, each from both of its sides.
        if type(network).__name__ not in CAUSAL.values():
            raise UserError(
                f"{model}: found a {type(network).__name__}; expected a causal language model"
            )
        network.to(device).eval()
        blocks = [block for block in self._tokens(vocabulary).split(length) if len(block) > 1]
        for block in tqdm(blocks, desc=name, unit="block", disable=None, leave=False):
            logits = network(input_ids=block[None].to(device)).logits[0, :-1]  # (T − 1) x V
            rows = chunk_rows(logits.t())
            for chunk, target in zip(
                logits.split(rows), block[1:].to(device).split(rows), strict=True
            ):
                yield chunk.float().log_softmax(1), target

    def _length(self, models: Mapping[str, PretrainedModel]) -> int:
        limits = [model.positions for model in models.values() if model.positions is not None]
        positions = min(limits, default=MAX_BLOCK)
        length = (
            min(positions, MAX_BLOCK) if self.tokens_per_sample is None else self.tokens_per_sample
        )
        if length < 2 or (limits and length > positions):
            raise UserError(
                f"--tokens-per-sample: expected 2 to {positions} (the model's "
                f"positions), got {length}"
            )
        return length

    def _tokens(self, vocabulary: TokenizerVocabulary) -> Tensor:
        """(N,) int64, the tokens of the file."""
        blocks = map(torch.from_numpy, vocabulary.encode_file(self.text))
        return torch.cat([torch.zeros(0, dtype=torch.int64), *blocks])


Text = BinarizedText | PlainText
"""What models are scored on; both have the same methods."""


@torch.no_grad()
def _log_probs(model: Any, task: Any, sample: dict[str, Any]) -> Iterator[Chunk]:
    """The positions of a batch that fairseq-eval-lm counts.

    Logits are formed and normalized for a chunk of positions at a time: beside the features (N, D),
    it takes the memory of a few such chunks, whatever the batch.
    """
    from fairseq import utils

    from ..fairseq_plugin.output_layer import replaced_output_layer

    device = next(model.parameters()).device
    sample = sample if device.type == "cpu" else utils.move_to_cuda(sample, device=device)
    target = sample["target"]  # B x T
    is_scored = target != task.target_dictionary.pad()
    if getattr(getattr(task, "args", None), "add_bos_token", False):
        is_scored &= target != task.target_dictionary.bos()
    target = target[is_scored]  # N
    layer, inputs = getattr(model.decoder, "output_layer", None), []

    def left_out(features: Tensor) -> Tensor:
        inputs.append(features)
        return features

    with replaced_output_layer(model.decoder, left_out):
        # N x D; or N x V, of a decoder with logits of its own
        output = model(**sample["net_input"])[0][is_scored]
    rows = chunk_rows(output.new_empty(len(task.target_dictionary), 0))
    for chunk, targets in zip(output.split(rows), target.split(rows), strict=True):
        # 1 x n x V, or features for an adaptive softmax
        output = layer(chunk[None]) if inputs else chunk[None]
        log_probs = model.get_normalized_probs((output, {}), log_probs=True)[0]  # n x V
        yield log_probs, targets
