"""The counter against a window recounted from scratch."""

import collections
import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agg_fairseq.modules import TokenCounter

V = 5
UPDATES = st.lists(
    st.tuples(
        st.lists(st.lists(st.integers(0, V - 1), max_size=6), max_size=3), st.sampled_from(["commit", "discard"])
    ),
    max_size=20,
)


@settings(max_examples=200, deadline=None)
@given(updates=UPDATES, window=st.integers(1, 6), resized=st.none() | st.integers(1, 6))
def test_equals_a_brute_force_window(updates, window, resized):
    counter, history = TokenCounter(V, window), []
    for number, (micro_batches, end) in enumerate(updates):
        if resized and number == 5:
            window = resized
            counter.resize(window)
            history = history[-window:]
        for tokens in micro_batches:
            counter.add(torch.tensor(tokens, dtype=torch.int64))
        counter.close()
        getattr(counter, end)()
        if end == "commit":
            history = [*history, [token for tokens in micro_batches for token in tokens]][-window:]
        expected = [sum(tokens.count(k) for tokens in history) for k in range(V)]
        assert counter.appearances.tolist() == expected
        assert counter.updates == len(history)
        assert counter.current.sum() == 0


def test_padding_is_not_counted():
    counter = TokenCounter(V, 1, ignore_index=1)
    counter.add(torch.tensor([[0, 1], [1, 4]]))
    counter.commit()
    assert counter.appearances.tolist() == [1, 0, 0, 0, 1]


def test_the_default_is_that_of_the_losses():
    """−100 is no index of a token; so is nothing at a position that is not counted."""
    counter = TokenCounter(V, 1)
    counter.add(torch.tensor([[0, -100], [-100, 4]]))
    counter.add(torch.tensor([-7, 2]), positions=torch.tensor([False, True]))
    counter.commit()
    assert counter.appearances.tolist() == [1, 0, 1, 0, 1]
    everything = TokenCounter(V, 1, ignore_index=None)
    with pytest.raises(IndexError):
        everything.add(torch.tensor([-100]))


def test_workers_are_summed():
    """Two counters whose tokens are reduced hold what one holds that sees everything."""
    counters = [TokenCounter(V, 3), TokenCounter(V, 3)]
    for counter, tokens in zip(counters, ([0, 0], [0, 3]), strict=True):
        counter.add(torch.tensor(tokens))
    total = counters[0].current + counters[1].current
    for counter in counters:
        counter.close(lambda counts: counts.copy_(total))
        counter.commit()
        assert counter.appearances.tolist() == [3, 0, 0, 1, 0]


@pytest.mark.parametrize("filled", [0, 1, 7])
def test_state_survives_a_file(filled):
    first = TokenCounter(V, 4)
    for update in range(filled):
        first.add(torch.tensor([update % V, 0]))
        first.commit()
    first.add(torch.tensor([4]))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = TokenCounter(V, 1)
    second.load_state_dict(torch.load(file, weights_only=True))
    for counter in (first, second):
        counter.commit()
        counter.add(torch.tensor([2]))
        counter.commit()
    assert torch.equal(first.appearances, second.appearances)
    assert (first.updates, first.window) == (second.updates, second.window)


def test_memory_is_bounded_by_the_tokens_in_the_window():
    counter = TokenCounter(50_000, 1000)
    for _ in range(50):
        counter.add(torch.randint(0, 50_000, (20,)))
        counter.commit()
    state = counter.get_extra_state()
    assert len(state["tokens"]) <= 50 * 20 and state["tokens"].dtype == torch.int32


@pytest.mark.parametrize("arguments", [(0, 1), (5, 0), (5, -1)])
def test_bad_sizes(arguments):
    with pytest.raises(ValueError, match="at least 1"):
        TokenCounter(*arguments)


def test_states_of_another_vocabulary_or_of_none():
    state = TokenCounter(5, 1).get_extra_state()
    for wrong, words in ((state, "over 6 tokens, got 5"), ({"vocabulary": 6}, "without 'current'"), (None, "without")):
        with pytest.raises(ValueError, match=words):
            TokenCounter(6, 1).set_extra_state(wrong)


class Event:
    """As a GPU's: it can be waited for, and not copied."""

    def synchronize(self):
        pass

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle an event")


def test_copies_of_the_module():
    """As a moving average of a model makes; with an update on its way to the host."""
    counter = TokenCounter(5, 2)
    counter.add(torch.tensor([0, 3, 3]))
    counter.commit()
    counter._leaving = (counter._leaving[0], Event())
    copied = copy.deepcopy(counter)
    copied.add(torch.tensor([1]))
    copied.commit()
    assert copied.appearances.tolist() == [1, 1, 0, 2, 0] and (copied.updates, counter.updates) == (2, 1)


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(st.integers(0, 1), max_size=12), window=st.none() | st.integers(1, 3))
def test_a_higher_number_commits_and_the_same_one_discards(numbers, window):
    """Each attempt counts a token of its own; only the last attempt at each number remains."""
    counter, update, done = TokenCounter(100, window), 0, {}
    for attempt, is_new in enumerate(numbers):
        update += is_new
        counter.begin(update)
        counter.add(torch.tensor([attempt]))
        done[update] = attempt
    counter.begin(update + 1)
    expected = sorted(done.values())[-(window or len(done)) :] if done else []
    assert counter.appearances.nonzero().flatten().tolist() == expected
    assert counter.open_update == update + 1 and not counter.current.any()


def test_a_number_that_starts_again_discards():
    """As after --reset-optimizer, with which fairseq counts its updates from 0."""
    counter = TokenCounter(V, 3)
    counter.begin(7)
    counter.add(torch.tensor([2]))
    counter.begin(0)
    assert counter.updates == 0 and not counter.appearances.any() and not counter.current.any()


def test_without_a_window_all_updates_are_remembered():
    counter = TokenCounter(V, None)
    for tokens in ([0, 0, 3], [3], [1]):
        counter.add(torch.tensor(tokens))
        counter.commit()
    counter.add(torch.tensor([4]))
    assert counter.appearances.tolist() == [2, 1, 0, 2, 0] and counter._slots == collections.deque()
    copied = TokenCounter(V, None)
    copied.load_state_dict(counter.state_dict())
    assert copied.appearances.tolist() == [2, 1, 0, 2, 0] and copied.current.tolist() == [0, 0, 0, 0, 1]


def test_positions_choose_what_is_counted():
    counter = TokenCounter(V, 1)
    counter.add(torch.tensor([[0, 2], [2, 2]]), positions=torch.tensor([[True, True], [False, True]]))
    assert counter.current.tolist() == [1, 0, 2, 0, 0]
