"""The target dictionaries of a task: how many there are, whether they are the same, and their special tokens."""

from typing import Any

import torch
from torch import Tensor

from ..data.binarized import FILLER, task_name


def target_dictionaries(task: Any) -> list[Any]:
    """The dictionary of the task, and those of the target languages of its language pairs, if it has any."""
    # translation_multi_simple_epoch may have one dictionary for all target languages, by --target-dict.
    manager = getattr(task, "data_manager", None)
    of_language = getattr(manager, "get_target_dictionary", None) or (lambda language: task.dicts[language])
    languages = sorted({pair.split("-")[1] for pair in getattr(task, "lang_pairs", None) or ()})
    return [task.target_dictionary, *map(of_language, languages)]


def check_one_dictionary(task: Any) -> None:
    """Raises ValueError if the target languages have different dictionaries, so that tokens cannot be counted."""
    first, *others = target_dictionaries(task)
    if any(dictionary != first for dictionary in others):
        raise ValueError(
            f"found different dictionaries of the target languages in the task {task_name(task)}; expected one, since "
            "tokens are counted; add --joined-dictionary to fairseq-preprocess"
        )


def special_tokens(dictionary: Any) -> Tensor:
    """(V,) bool, the tokens that no method treats as rare: padding, begin and end of sentence, the unknown word."""
    is_special = torch.zeros(len(dictionary), dtype=torch.bool)
    is_special[[dictionary.pad(), dictionary.bos(), dictionary.eos(), dictionary.unk()]] = True
    return is_special


def fillers(dictionary: Any) -> Tensor:
    """(V,) bool, the entries that only fill the dictionary. In a group of a given size they displace rare tokens.

    A dictionary that --output-dictionary-size truncates keeps all symbols; V is the number of those in use.
    """
    entries = list(zip(dictionary.symbols, dictionary.count, strict=True))[: len(dictionary)]
    return torch.tensor([not count and FILLER.fullmatch(token) is not None for token, count in entries])
