import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.training.configuration import Batches, split


@pytest.mark.parametrize(
    ("tokens", "processes", "largest", "block", "expected"),
    [
        (32768, 1, 4096, 1024, (4096, 8)),  # as written
        (32768, 16, 4096, 1024, (2048, 1)),  # smaller batches
        (8192, 3, 8192, 1024, (3072, 1)),  # 9,216: nearer than 6,144
        (8192, 16, 8192, 1024, (1024, 1)),  # a block each, at least
        (65536, 6, 8192, 1, (3641, 3)),  # 65,538: nearer than 6 x 5,461 x 2
        (32768, 3, 4096, 1024, (2048, 5)),  # 30,720: nearer than 3 x 4,096 x 3 = 36,864
    ],
)
def test_split(tokens, processes, largest, block, expected):
    assert split(tokens, processes, largest, block) == Batches(processes, *expected)


@given(
    tokens=st.integers(1, 10**5), processes=st.integers(1, 64), largest=st.integers(1, 10**4), block=st.integers(1, 64)
)
def test_split_is_as_near_as_the_batches_it_may_choose_from(tokens, processes, largest, block):
    largest = max(largest, block)
    batches = split(tokens, processes, largest, block)
    fewest = max(1, -(-tokens // (processes * largest)))
    assert batches.max_tokens % block == 0 and 0 < batches.max_tokens <= largest
    assert fewest <= batches.update_freq <= 2 * fewest
    possible = (
        processes * block * blocks * number
        for number in range(fewest, 2 * fewest + 1)
        for blocks in range(1, largest // block + 1)
    )
    assert abs(batches.tokens - tokens) == min(abs(one - tokens) for one in possible)
