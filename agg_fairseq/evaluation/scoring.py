"""Texts that models are scored on, teacher-forced, a chunk of positions at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ..checkpoints import Checkpoint, Models, PretrainedModel
from ..data.binarized import count_split, load_dictionary
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import BinarizedVocabulary
from ..errors import UserError
from ..files import read_lines
from ..integrations import load_pretrained
from ..metrics.next_token import chunk_rows
from .inputs import load_vocabulary

MAX_BLOCK = 1024  # tokens, where neither the user nor the positions of a model say less
Chunk = tuple[Tensor, Tensor]  # logits (n, V), or log P, and the targets (n,)


@dataclass(frozen=True)
class BinarizedText:
    """A split written by `fairseq-preprocess`, which models of fairseq are scored on.

    Args:
        data: folder with the split, and with the training split, in which tokens are counted.
        split: split to score; a translation model scores its target side.
        tokens_per_sample: tokens per block, its context included; None: as in training, and for a
            text the positions of the models.
        context_window: tokens of context before each block of a split, which are not scored.
    """

    data: str | Path
    split: str = "test"
    tokens_per_sample: int | None = None
    context_window: int = 0
    max_tokens: int | None = None

    @property
    def name(self) -> str:
        """The name of the text in signatures."""
        return self.split

    def load_vocabularies(self, models: Models) -> dict[str, BinarizedVocabulary]:
        """The vocabulary of each model, all the same."""
        return dict.fromkeys(models, load_vocabulary(models, self.data))

    def check(self, vocabulary: BinarizedVocabulary) -> None:
        """Reads the split: fairseq would score what a damaged index says."""
        dictionaries = {vocabulary.languages: vocabulary.dictionary}
        if vocabulary.languages is not None:
            source, target = vocabulary.languages
            dictionaries[target, source] = load_dictionary(self.data, f"dict.{source}.txt")
        for languages, dictionary in dictionaries.items():
            count_split(self.data, dictionary, self.split, languages, combine=False)

    def settings(
        self, models: Mapping[str, Checkpoint], vocabulary: BinarizedVocabulary
    ) -> dict[str, str | int | None]:
        """How the models read the text, as settings of a result."""
        if vocabulary.languages is not None:
            return {"pairs": "-".join(vocabulary.languages)}
        length = self.tokens_per_sample
        if length is None:
            lengths = {
                one.options("task").get("tokens_per_sample") or MAX_BLOCK for one in models.values()
            }
            if len(lengths) > 1:
                raise UserError(
                    f"found models trained on {sorted(lengths)} tokens per block; give "
                    "--tokens-per-sample"
                )
            (length,) = lengths
        return {"tokens-per-sample": length, "break": "none", "context": self.context_window}

    def score(
        self,
        model: Checkpoint,
        vocabulary: BinarizedVocabulary,
        settings: Mapping[str, Any],
        device: torch.device,
    ) -> Iterator[Chunk]:
        """The positions that fairseq-eval-lm counts, or the target side of pairs; with `settings`."""
        from ..fairseq_plugin.scoring import score_split  # imports fairseq

        return score_split(
            model,
            self.data,
            self.split,
            length=settings.get("tokens-per-sample"),
            context=self.context_window,
            max_tokens=self.max_tokens,
            device=device,
        )


@dataclass(frozen=True)
class PlainText:
    """A text in UTF-8, for causal language models of transformers with one tokenizer; encoded
    without special tokens, and cut into blocks, of which the first token is not scored without
    `bos`.

    Args:
        text: file to score.
        train_text: file in which the tokens are counted, for the frequency groups; None if they are
            formed by the occurrences in another text.
        tokens_per_sample: tokens per block; None: the positions of the models, at most 1,024.
        bos: put the begin of a sequence before each block of --text, as config.json has it.
    """

    text: str | Path
    train_text: str | Path | None = None
    tokens_per_sample: int | None = None
    bos: bool = False

    @property
    def name(self) -> str:
        """The name of the text in signatures."""
        return Path(self.text).name

    def load_vocabularies(self, models: Models) -> dict[str, TokenizerVocabulary]:
        """The vocabulary of each model, one object for models with the same tokens."""
        found = {}
        for name, model in models.items():
            vocabulary = load_vocabulary({name: model}, None)
            same = [one for one in found.values() if one.tokens == vocabulary.tokens]
            if same:
                vocabulary = same[0]
            elif self.train_text is not None:
                vocabulary = vocabulary.recount(self.train_text)
            found[name] = vocabulary
        return found

    def check(self, vocabulary: TokenizerVocabulary) -> tuple[int, int, int]:
        """The numbers of tokens, words and bytes of the text, which must have a target."""
        if (tokens := len(self._tokens(vocabulary))) < 2:
            raise UserError(f"{self.text}: found fewer than 2 tokens; expected a text to score")
        words = size = 0
        for line in read_lines(self.text, "a text to score"):
            words, size = words + len(line.split()), size + len(line.encode())
        return tokens, words, size

    def settings(
        self, models: Mapping[str, PretrainedModel], vocabulary: TokenizerVocabulary
    ) -> dict[str, str | int | None]:
        """How the models read the text, as settings of a result."""
        limits = [model.positions for model in models.values() if model.positions is not None]
        length = self.tokens_per_sample or min([*limits, MAX_BLOCK])
        most = min(limits, default=length)  # positions of the models
        if not 2 <= length <= most:
            raise UserError(
                f"--tokens-per-sample: found {length}; expected from 2 to {max(2, most)}, as many "
                "as the models have positions"
            )
        return {
            "tokens-per-sample": length,
            "context": 0,
            "bos": self.bos or None,
            "counted-in": self.train_text and Path(self.train_text).name,
            "dtype": "float32",
        }

    @torch.no_grad()
    def score(
        self,
        model: PretrainedModel,
        vocabulary: TokenizerVocabulary,
        settings: Mapping[str, Any],
        device: torch.device,
    ) -> Iterator[Chunk]:
        """All tokens but the first of each block, as the loss of transformers has them; with
        `settings`."""
        network = load_pretrained(model.path, dtype=torch.float32)
        from transformers.models.auto import modeling_auto

        # A masked model, too, has logits for all tokens, and some of these classes see later ones.
        causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        tokens = self._tokens(vocabulary).to(device)
        network.to(device).eval()
        if type(network).__name__ not in causal or not _is_causal(network, tokens[:8]):
            raise UserError(
                f"{model}: found a {type(network).__name__}, whose logits depend on later "
                "tokens or are of something else; expected a causal language model"
            )
        length = settings["tokens-per-sample"]
        start = tokens[:0]
        if self.bos:
            token = model.skeleton.config.get_text_config().bos_token_id
            if not isinstance(token, int):
                raise UserError(f"--bos: found no bos_token_id in the config.json of {model}")
            start = torch.full((1,), token, dtype=torch.int64, device=device)
        blocks = tokens.split(length - len(start))
        for block in tqdm(blocks, str(model), leave=False, disable=None):
            block = torch.cat([start, block])
            if len(block) < 2:
                continue
            logits = network(input_ids=block[None]).logits[0, :-1]  # (T − 1) x V
            rows = chunk_rows(logits.size(1))
            for chunk, target in zip(logits.split(rows), block[1:].split(rows), strict=True):
                yield chunk.float(), target

    def _tokens(self, vocabulary: TokenizerVocabulary) -> Tensor:
        """(N,) int64, the tokens of the file."""
        blocks = map(torch.from_numpy, vocabulary.encode_file(self.text))
        return torch.cat([torch.zeros(0, dtype=torch.int64), *blocks])


def _is_causal(network: Any, tokens: Tensor) -> bool:
    """Does another last token leave the logits before it as they are?"""
    first = network(input_ids=tokens[None]).logits[0, :-1]
    tokens = torch.cat([tokens[:-1], (tokens[-1:] + 1) % first.size(1)])
    second = network(input_ids=tokens[None]).logits[0, :-1]
    return not (first - second).abs().max() > 1e-4 * first.abs().max()  # nor with a NaN


Text = BinarizedText | PlainText  # both have the same methods
