from hypothesis import example, given
from hypothesis import strategies as st

from scripts.training.configuration import split


@given(
    tokens=st.integers(1, 10**5), processes=st.integers(1, 64), largest=st.integers(1, 10**4), block=st.integers(1, 64)
)
@example(tokens=32768, processes=1, largest=4096, block=1024)
@example(tokens=8192, processes=16, largest=8192, block=1024)  # a block each, at least
def test_split_is_as_near_as_the_batches_it_may_choose_from(tokens, processes, largest, block):
    """Of those that are as near, the fewest and largest."""
    largest = max(largest, block)
    batches = split(tokens, processes, largest, block)
    fewest = max(1, -(-tokens // (processes * largest)))
    assert batches.max_tokens % block == 0 and 0 < batches.max_tokens <= largest
    possible = (
        (abs(processes * block * blocks * number - tokens), number)
        for number in range(fewest, 2 * fewest + 1)
        for blocks in range(1, largest // block + 1)
    )
    assert (abs(batches.tokens - tokens), batches.update_freq) == min(possible)
