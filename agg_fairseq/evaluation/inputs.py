"""What is evaluated, loaded and checked: models of one vocabulary, a device that works."""

from collections.abc import Iterable
from pathlib import Path

import torch

from ..checkpoints import Checkpoint, Models
from ..data.binarized import training_pair
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import BinarizedVocabulary, Vocabulary
from ..errors import UserError
from ..names import GROUPINGS


def load_vocabulary(
    models: Models,
    data: str | Path | None,
    train_text: str | Path | None = None,
) -> Vocabulary:
    """The vocabulary of all models, with the counts of its tokens in the training split of `data`
    for models of fairseq, or in `train_text`, if given, for those of transformers."""
    for model in models.values():
        is_of_fairseq = isinstance(model, Checkpoint)
        if is_of_fairseq != (data is not None) or None not in (data, train_text):
            kind = "fairseq" if is_of_fairseq else "transformers"
            raise UserError(
                f"{model}: found a model of {kind}; expected models of fairseq alone with --data, "
                "and of transformers alone with --train-text or without"
            )
    if data is not None:
        from ..fairseq_plugin.models.from_checkpoint import dictionary_and_counts  # imports fairseq

        found = {}  # a model by languages, None for language models
        for model in models.values():
            pair = model.languages
            if pair is not None and not all(pair):
                pair = training_pair(data, *pair)
            found[pair] = model
        if len(found) > 1:
            kinds = []
            for pair, model in found.items():
                kinds.append(f"{model} ({'a language model' if pair is None else '-'.join(pair)})")
            raise UserError(
                f"found {' and '.join(kinds)}; expected models of one task and its languages"
            )
        (pair,) = found
        vocabulary = BinarizedVocabulary(*dictionary_and_counts(models.values(), data, pair), pair)
        for model in models.values():
            model.check_vocabulary(len(vocabulary.tokens), data)
        return vocabulary
    vocabulary = None
    for model in models.values():
        other = TokenizerVocabulary.load(model.tokenizer_file, len(model.output_embedding.saved))
        vocabulary = vocabulary or other
        if other.tokens != vocabulary.tokens:
            raise UserError(
                f"{model}: found another vocabulary than in {next(iter(models.values()))}; measure "
                "them one at a time"
            )
    return vocabulary if train_text is None else vocabulary.recount(train_text)


def check_row_names(names: Iterable[str], *taken: str) -> None:
    """Checks that nothing that is measured has the name of another row of the table."""
    for name in names:
        if name in taken:
            raise UserError(
                f"--name: found {name!r}, a row of its own in the table; give another name"
            )


def matrix_setting(models: Models) -> str:
    """The output embeddings, each once, as a setting of a result."""
    return ",".join(dict.fromkeys(model.output_embedding.description for model in models.values()))


def frequency_settings(
    data: str | Path | None, train_text: str | Path | None, groups: str
) -> dict[str, str | None]:
    """Settings of a result that say how groups were formed, if there are any."""
    if data is None and train_text is None:
        return {}
    return {"groups": GROUPINGS[groups], "counted-in": train_text and Path(train_text).name}


def find_device(name: str | None) -> torch.device:
    """The device of that name, tried out; by default a GPU if there is one."""
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.zeros(1, device=device).item()
    return device
