"""The rarest fifth of a vocabulary is the same set for measures, for gates and for freezing; tokens
that are no target in training, whose gate is 0, are rare in training and unseen in measures."""

from bisect import bisect_right

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
        groups = vocabulary.groups("types")
        measured = torch.zeros_like(counts, dtype=torch.bool)
        measured[groups.members("rare")] = True
        objective = trainers[0].criterion.objective
        objective.count(torch.arange(len(counts)).repeat_interleave(counts))
        objective.commit_update()

        words = {
            index: int(counts[index])
            for index, word in enumerate(dictionary.symbols[4:], 4)
            if not word.startswith("madeupword")
        }
        unseen = [index for index, count in words.items() if not count]
        assert unseen == (groups.members("unseen").tolist() if unseen else [])
        assert bool(unseen) == (data is not lm_data)
        assert not languages or dictionary.index("w0") in unseen
        ascending = sorted(count for count in words.values() if count)
        number = int(0.2 * len(ascending) + 0.5)
        sizes = {bisect_right(ascending, c): c for c in ascending}
        threshold = sizes[min(sizes, key=lambda size: (abs(size - number), -size))]
        rare = [index for index, count in words.items() if 0 < count <= threshold]
        assert measured.nonzero().flatten().tolist() == rare

        measured[unseen] = True
        gates = objective.gates(None)
        assert torch.equal(gates.rare, measured)
        assert not gates.at_common_targets(torch.ones(1))[unseen].any()
        assert not gates.at_rare_targets(torch.ones(1))[unseen].any()
        assert torch.equal(trainers[1].criterion.rare, measured)
