"""The dictionaries of a task: how many target languages have one of their own, and whether the source language has."""

from typing import Any

from ..data.binarized import task_name


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


def has_joined_dictionary(task: Any) -> bool:
    """Whether the task translates, and has one dictionary for both languages: some tokens are then never a target."""
    from fairseq.tasks.translation import TranslationTask

    return isinstance(task, TranslationTask) and task.source_dictionary.symbols == task.target_dictionary.symbols
