import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agg_fairseq.modules import TokenCounter
from agg_fairseq.modules.token_counter import pack, unpack

V = 5
TOKENS = st.lists(st.integers(0, V - 1), max_size=6)
UPDATES = st.lists(
    st.tuples(st.lists(TOKENS, max_size=3), st.sampled_from(["commit", "roll_back"])), max_size=20
)


def restored(counter):
    """A counter that has other counts, and then the state of this one, from a file."""
    other = TokenCounter(len(counter.current), counter.window)
    other.most_slots = counter.most_slots
    other.add(torch.tensor([3, 3]))
    other.commit()
    torch.save(counter.state_dict(), file := io.BytesIO())
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.window == counter.window
    return other


@settings(max_examples=200)
@given(updates=UPDATES, window=st.none() | st.integers(1, 6), resized=st.none() | st.integers(1, 6))
def test_equals_a_brute_force_window(updates, window, resized):
    counter, history = TokenCounter(V, window), []
    for number, (micro_batches, end) in enumerate(updates):
        if window and resized and number == 5:
            window = resized
            counter.resize(window)
            history = history[-window:]
        for tokens in micro_batches:
            counter.add(torch.tensor(tokens, dtype=torch.int64))
        counter.current.mul_(2)  # another worker has seen the same
        if number % 3 == 0:
            counter = restored(counter)
        getattr(counter, end)()
        if end == "commit":
            history = [*history, sum(micro_batches, []) * 2][-(window or 99) :]
        seen = torch.tensor(sum(history, []), dtype=torch.int64)
        assert counter.appearances.equal(torch.bincount(seen, minlength=V))
        # without a window, only the sums are kept
        assert counter.updates == (len(history) if window else 0)
        assert counter.current.sum() == 0


def test_what_is_counted():
    for ignore_index, options in ((1, {"ignore_index": 1}), (-100, {})):
        counter = TokenCounter(V, 1, **options)
        counter.add(torch.tensor([[0, ignore_index], [ignore_index, 4]]))
        assert counter.current.tolist() == [1, 0, 0, 0, 1]
    for wrong, message in (
        (torch.tensor([V]), "expected targets in .* got 5"),
        (torch.tensor([1.0]), "of torch.int64, got torch.float32"),
    ):
        with pytest.raises(ValueError, match=message):
            counter.add(wrong)


def test_slots_of_several_updates_count_exactly_and_are_forgotten_together():
    """A window of 10 updates in 4 slots, of 3 updates each: it holds the last 8 to 10."""
    generator = torch.Generator().manual_seed(0)
    counter, seen = TokenCounter(20, window=10), []
    counter.most_slots = 4
    for update in range(1, 40):
        seen.append(torch.randint(20, (7,), generator=generator))
        counter.add(seen[-1])
        counter.commit()
        assert counter.updates in ((update,) if update < 10 else (8, 9, 10))
        expected = torch.cat(seen[-counter.updates :])
        assert counter.appearances.equal(torch.bincount(expected, minlength=20))
        assert len(counter.get_extra_state()[0]["bytes"]) <= 4
        counter = restored(counter)


@pytest.mark.parametrize(("window", "together"), [(4096, 1), (30_000, 30)])
def test_a_long_window_forgets_a_thousandth_at_a_time(window, together):
    counter = TokenCounter(4, window)
    for _ in range(2 * together):
        counter.add(torch.tensor([1]))
        counter.commit()
    assert counter.get_extra_state()[0]["updates"].tolist() == [together, together]


def test_a_slot_has_about_a_byte_per_distinct_token_whatever_the_vocabulary():
    for vocabulary, tokens, most in ((100_000, 2000, 3000), (100_000, 0, 20), (7, 50, 40)):
        counts = torch.bincount(
            torch.arange(tokens) ** 3 % 99_991 % vocabulary, minlength=vocabulary
        )
        packed = pack(counts)
        assert len(packed) < most
        assert torch.zeros_like(counts).index_add_(0, *unpack(packed)).equal(counts)
