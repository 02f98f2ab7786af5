"""The dictionaries of a task: do its target languages have one, and is it that of the source language too?"""

from typing import Any

from ..data.binarized import task_name


def check_one_dictionary(task: Any) -> None:
    """Raises ValueError if the target languages have different dictionaries, so that tokens cannot be counted."""
    manager = getattr(task, "data_manager", None)  # of translation_multi_simple_epoch, with one by --target-dict
    of_language = getattr(manager, "get_target_dictionary", None) or (lambda language: task.dicts[language])
    languages = {pair.split("-")[1] for pair in getattr(task, "lang_pairs", None) or ()}
    if any(of_language(language) != task.target_dictionary for language in languages):
        raise ValueError(
            f"found different dictionaries of the target languages in the task {task_name(task)}; expected one, since "
            "tokens are counted; add --joined-dictionary to fairseq-preprocess"
        )


def has_joined_dictionary(task: Any) -> bool:
    """Whether the task translates, and has one dictionary for both languages: some tokens are then never a target."""
    from fairseq.tasks.translation import TranslationTask

    return isinstance(task, TranslationTask) and task.source_dictionary.symbols == task.target_dictionary.symbols
