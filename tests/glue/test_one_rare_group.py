"""The rarest fifth of a vocabulary is the same set for measures, for gates and for freezing."""

import torch

from agg_fairseq.data.vocabulary import BinarizedVocabulary
from tests.conftest import preprocessed
from tests.small_trainings import MT, trainer_for


def test_the_same_in_measures_gates_and_freezing(lm_data, mt_data, tmp_path):
    """With words that training lacks, with fillers, and with a dictionary that is joined with the
    source language's."""
    text = ["w0 w1 w0 w9", "w1 w0 w3 w2 w2 w5 never"] * 3
    srcdict = f"--srcdict={lm_data / 'dict.txt'}"
    unseen = preprocessed(
        tmp_path, dict.fromkeys(("train", "valid", "test"), text), "--only-source", srcdict
    )
    for data, base, languages in (
        (lm_data, None, None),
        (unseen, None, None),
        (mt_data, MT, ("en", "de")),
    ):
        options = {} if base is None else {"base": base}
        trainers = [
            trainer_for(data, "--criterion", *own, **options)[0]
            for own in (
                ("agg", "--agg-rare-fraction", 0.2),
                ("freeze_rare", "--freeze-fraction", 0.2),
            )
        ]
        vocabulary = BinarizedVocabulary.load(data, languages)
        counts, dictionary = vocabulary.counts, vocabulary.dictionary
        measured = torch.zeros_like(counts, dtype=torch.bool)
        measured[vocabulary.groups("types").members("rare")] = True
        objective = trainers[0].criterion.objective
        objective.count(torch.arange(len(counts)).repeat_interleave(counts))
        objective.commit_update()
        objective.start_update()
        assert torch.equal(objective.current_gates.rare, measured)
        assert torch.equal(trainers[1].criterion.rare, measured)

        words = {word for word in dictionary.symbols[4:] if not word.startswith("madeupword")}
        if languages:
            assert "w0" in words, "of the source language"
            words = {word for word in words if counts[dictionary.index(word)]}
        ranked = sorted(
            words, key=lambda word: (-counts[dictionary.index(word)], dictionary.index(word))
        )
        rare = {dictionary[row] for row in measured.nonzero().flatten().tolist()}
        assert rare == set(ranked[-int(0.2 * len(words) + 0.5) :])
