"""Log-probabilities of every token at each position of a text: teacher-forced, a chunk of positions at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..awd_lstm.continuous_cache import CacheOptions, ContinuousCache
from ..checkpoints import Checkpoint, EmbeddingSource, PretrainedModel
from ..checkpoints.fairseq_checkpoint import STREAMS
from ..data.binarized import load_dictionary
from ..errors import UserError, first_line
from ..functional.loss_core import CHUNK_ELEMENTS
from ..integrations.log_unigram import load_pretrained
from .inputs import check_split, load_embedding_vocabulary, load_vocabulary

BREAK_MODES = ("none", "complete", "complete_doc", "eos")  # how fairseq cuts a split into blocks
MOST_TOKENS = 1024  # of a block, where neither the user nor the positions of a model of transformers say less
Chunk = tuple[Tensor, Tensor]  # log P (n, V) in nats, and the targets (n,)


class BinarizedText:
    """Splits written by `fairseq-preprocess`, and how models read them: checked before any of them is built.

    Attributes:
        vocabulary: of the models.
        signature: how the splits are read.
    """

    def __init__(
        self,
        checkpoints: Mapping[str, EmbeddingSource],
        data: str | Path | None,
        *,
        length: int | None = None,
        break_mode: str = "none",
        context: int = 0,
        max_tokens: int | None = None,
        cache: CacheOptions | None = None,
    ) -> None:
        for checkpoint in checkpoints.values():
            if not isinstance(checkpoint, Checkpoint):
                raise UserError(f"{checkpoint}: found a model of transformers; give the text to score by --text FILE")
        if data is None:
            raise UserError("found no DATA; expected the folder that the models were trained on")
        if length is not None and length < 1:
            raise UserError(f"--tokens-per-sample: expected at least 1, got {length}")
        vocabulary = load_vocabulary(checkpoints, data)
        signature, pair = [], vocabulary.languages
        if pair is None:
            lengths = [one.task_options.get("tokens_per_sample") or 1024 for one in checkpoints.values()]
            if length is None and len(set(lengths)) > 1:
                raise UserError(
                    f"found models trained on {', '.join(map(str, lengths))} tokens per block; give "
                    "--tokens-per-sample, since perplexities over blocks of different lengths do not compare"
                )
            length = lengths[0] if length is None else length
            signature += [f"tokens-per-sample:{length}", f"break:{break_mode}", f"context:{context}"]
        elif length is not None or break_mode != "none" or context or cache is not None:
            raise UserError(
                "--tokens-per-sample, --sample-break-mode, --context-window, --cache-size: found one of them with a "
                "translation model, which scores pairs of sentences; leave it out"
            )
        else:
            signature.append(f"pairs:{'-'.join(pair)}")
        carrying = [name for name, checkpoint in checkpoints.items() if checkpoint.task_options["_name"] == STREAMS]
        if carrying and context:
            raise UserError(
                f"--context-window: found {context} with {carrying[0]}, which carries its state from block to "
                "block; expected 0"
            )
        if carrying:
            signature.append(f"state:carried({','.join(carrying)})")
        if cache is not None:
            try:
                ContinuousCache(cache)
            except ValueError as error:
                raise UserError(str(error)) from error
            signature.append(f"cache:{cache.size},theta={cache.theta:g},lambda={cache.weight:g}")
        self.data, self.vocabulary, self.signature = data, vocabulary, signature
        self.length, self.break_mode, self.context = 1 if length is None else length, break_mode, context
        self.max_tokens, self.cache = max_tokens, cache

    def check(self, split: str) -> None:
        """Checks that a split is there, and can be read as it was written."""
        file = self.vocabulary.split.name.replace("train", split, 1)  # of a parallel split with its side
        check_split(self.data, self.vocabulary.dictionary, file)
        if self.vocabulary.languages is not None:
            source, target = self.vocabulary.languages
            dictionary = load_dictionary(self.data, f"dict.{source}.txt")
            check_split(self.data, dictionary, f"{file.removesuffix(target)}{source}")

    def score(self, checkpoint: Checkpoint, split: str, place: torch.device, name: str) -> Iterator[Chunk]:
        """The positions that fairseq-eval-lm counts, or the target side of the pairs of a translation model."""
        from ..fairseq_glue.output_layer import factorized_layer
        from ..models.from_checkpoint import build_model

        overrides = {"sample_break_mode": self.break_mode, "tokens_per_sample": self.length}
        model, task = build_model(checkpoint, self.data, overrides if checkpoint.is_language_model else {})
        model.to(place)
        if checkpoint.is_language_model:
            self._check_blocks(model.max_positions())
            task.args.tokens_per_sample = self.length - self.context
        cache = None if self.cache is None else ContinuousCache(self.cache)
        if cache is not None and (
            getattr(model.decoder, "adaptive_softmax", None) is not None or factorized_layer(model) is not None
        ):
            raise UserError(
                f"--cache-size: found an adaptive or factorized softmax in {checkpoint}; expected one softmax over "
                "all tokens"
            )
        try:
            task.load_dataset(split)
        except (ValueError, RuntimeError, AssertionError, OSError) as error:
            where = f"{self.data}/{split}"
            raise UserError(f"{where}: unreadable ({first_line(error)}); run fairseq-preprocess again") from error
        for sample in tqdm(self._batches(model, task, split), desc=name, unit="batch", disable=None, leave=False):
            if "net_input" not in sample:
                continue
            try:
                yield from _log_probs(model, task, sample, cache)
            except torch.cuda.OutOfMemoryError as error:
                raise UserError(
                    f"--max-tokens: found {sample['ntokens']} tokens too many for the GPU's memory; lower it, or "
                    "choose --device cpu"
                ) from error

    def _check_blocks(self, positions: int) -> None:
        """Refuses lengths that do not go together, or exceed the positions of a model."""
        if not 1 <= self.length <= positions:
            raise UserError(
                f"--tokens-per-sample: expected 1 to {positions} (the model's positions), got {self.length}"
            )
        if not 0 <= self.context < self.length:
            raise UserError(
                f"--context-window: expected 0 to {self.length - 1} (below --tokens-per-sample), got {self.context}"
            )
        if self.max_tokens is not None and not self.length <= self.max_tokens < 2**31:
            raise UserError(
                f"--max-tokens: expected {self.length} (--tokens-per-sample) to 2^31 - 1, got {self.max_tokens}"
            )
        if self.break_mode == "eos" and not hasattr(np, "compat"):
            raise UserError(f"--sample-break-mode eos: found numpy {np.__version__}; fairseq needs numpy<2 for it")

    def _batches(self, model: Any, task: Any, split: str) -> Any:
        """The batches that fairseq-eval-lm would score; pairs of a translation model; or with a cache single blocks."""
        dataset, positions = task.dataset(split), model.max_positions()
        if self.vocabulary.languages is not None:
            return task.get_batch_iterator(
                dataset, max_tokens=self.max_tokens or 2048, max_positions=positions, ignore_invalid_inputs=True
            ).next_epoch_itr(shuffle=False)
        if self.cache is not None:
            return self._blocks_in_order(task, dataset, positions)
        return task.eval_lm_dataloader(
            dataset=dataset,
            max_tokens=self.max_tokens or max(2048, self.length),
            max_positions=positions,
            num_workers=0,
            context_window=self.context,
        )

    def _blocks_in_order(self, task: Any, dataset: Any, positions: int) -> Iterator[dict[str, Any]]:
        """Batches of one block each, in the order of the text, which fairseq changes to sort blocks by length.

        As in fairseq's batches, blocks of more tokens than the model has `positions` are left out.
        """
        from fairseq.data import LMContextWindowDataset

        kept = np.flatnonzero(np.asarray(dataset.sizes) <= positions)
        if self.context:
            padding = task.source_dictionary.pad()
            dataset = LMContextWindowDataset(dataset, task.args.tokens_per_sample, self.context, padding)
        for number in kept:
            yield dataset.collater([dataset[number]])


class PlainText:
    """Files of text in UTF-8, for causal language models of transformers with one tokenizer; as `BinarizedText`."""

    def __init__(
        self, models: Mapping[str, EmbeddingSource], text: str | Path, train_text: str | Path | None, length: int | None
    ) -> None:
        counted_in = text if train_text is None else train_text
        self.vocabulary = load_embedding_vocabulary(models, None, counted_in)
        limits = [model.positions for model in models.values() if model.positions is not None]
        positions = min(limits, default=MOST_TOKENS)
        self.length = min(positions, MOST_TOKENS) if length is None else length
        if self.length < 2 or (limits and self.length > positions):
            raise UserError(f"--tokens-per-sample: expected 2 to {positions} (the model's positions), got {length}")
        self.signature = [f"tokens-per-sample:{self.length}", f"counted-in:{Path(counted_in).name}"]

    def check(self, text: str) -> None:
        """Checks that a text can be read, and has a block with a target."""
        if len(self._tokens(text)) < 2:
            raise UserError(f"{text}: found fewer than 2 tokens; expected a text to score")

    @torch.no_grad()
    def score(self, model: PretrainedModel, text: str, place: torch.device, name: str) -> Iterator[Chunk]:
        """All tokens but the first of each block; so their mean is the loss of transformers over the same blocks."""
        try:
            from transformers import AutoModelForCausalLM

            network = load_pretrained(AutoModelForCausalLM, model.path.parent, local_files_only=True, dtype="auto")
        except Exception as error:  # whatever transformers raises for a folder that is no such model
            raise UserError(
                f"{model}: transformers cannot load its model ({first_line(error)}); expected a causal language model, "
                "and pip install '.[transformers]'"
            ) from error
        network.to(place).eval()
        blocks = [block for block in self._tokens(text).split(self.length) if len(block) > 1]
        for block in tqdm(blocks, desc=name, unit="block", disable=None, leave=False):
            logits = network(input_ids=block[None].to(place)).logits[0, :-1]  # (T − 1) x V
            rows = max(1, CHUNK_ELEMENTS // logits.size(1))
            for chunk, target in zip(logits.split(rows), block[1:].to(place).split(rows), strict=True):
                yield chunk.float().log_softmax(1), target

    def _tokens(self, text: str) -> Tensor:
        """(N,) int64, the tokens of a file."""
        return torch.cat([torch.zeros(0, dtype=torch.int64), *map(torch.from_numpy, self.vocabulary.encode_file(text))])


@torch.no_grad()
def _log_probs(model: Any, task: Any, sample: dict[str, Any], cache: ContinuousCache | None) -> Iterator[Chunk]:
    """The positions of a batch that fairseq-eval-lm counts.

    Logits are formed and normalized for a chunk of positions at a time: beside the features (N, D), it takes the memory
    of a few times `CHUNK_ELEMENTS` numbers, whatever the batch. With a cache, the batch is one block of the text.
    """
    from fairseq import utils

    device = next(model.parameters()).device
    sample = sample if device.type == "cpu" else utils.move_to_cuda(sample, device=device)
    target = sample["target"]  # B x T
    kept = target != task.target_dictionary.pad()
    if getattr(getattr(task, "args", None), "add_bos_token", False):
        kept &= target != task.target_dictionary.bos()
    target = target[kept]  # N
    decoder, layer, is_called = model.decoder, getattr(model.decoder, "output_layer", None), []
    if layer is not None:  # for this call it returns what it is given
        decoder.output_layer = lambda features: is_called.append(True) or features
    try:
        found = model(**sample["net_input"])[0][kept]  # N x D; or N x V, of a decoder that forms logits elsewhere
    finally:
        if layer is not None:
            del decoder.output_layer  # so that the method of the class is found again
    if cache is not None and not is_called:
        raise UserError(f"--cache-size: found {type(model).__name__}, whose logits do not come from `output_layer`")
    rows = max(1, CHUNK_ELEMENTS // len(task.target_dictionary))
    for chunk, targets in zip(found.split(rows), target.split(rows), strict=True):
        output = layer(chunk[None]) if is_called else chunk[None]  # 1 x n x V, or features for an adaptive softmax
        log_probs = model.get_normalized_probs((output, {}), log_probs=True)[0]  # n x V
        yield (log_probs if cache is None else cache.add(chunk, targets, log_probs)), targets
