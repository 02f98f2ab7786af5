"""Work by several processes: in order, as it is needed, and with the errors of the work."""

import itertools
import os
import signal
import time

import pytest

from agg_fairseq.errors import UserError
from scripts.data.parallel_map import WAITING, in_order


def slower_at_first(chunk):
    time.sleep(0.02 if chunk[0] < 10 else 0)
    return [number * 2 for number in chunk]


def only_even(chunk):
    return [number for number in chunk if number % 2 == 0]


def refuse_seven(chunk):
    if 7 in chunk:
        raise UserError("found 7")
    return chunk


def die_at_seven(chunk):
    if 7 in chunk:
        os.kill(os.getpid(), signal.SIGKILL)
    return chunk


def process(chunk):
    return [os.getpid()]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_order(workers, count):
    """The first chunks take longest, and are first all the same."""
    assert list(in_order(slower_at_first, range(count), workers, 3)) == [2 * number for number in range(count)]


def test_fewer_results_than_items():
    assert list(in_order(only_even, range(9), 2, 2)) == [0, 2, 4, 6, 8]


def test_other_processes_work():
    found = set(in_order(process, range(20), 2, 1))
    assert os.getpid() not in found and len(found) <= 2


def test_items_are_read_as_they_are_needed():
    """An endless stream: no more is read than the processes are allowed to have in hand."""
    read = []

    def items():
        for number in itertools.count():
            read.append(number)
            yield number

    stream = in_order(only_even, items(), 2, 5)
    assert next(stream) == 0
    assert len(read) == 5 * (2 * WAITING + 1)
    stream.close()


@pytest.mark.parametrize(("work", "message"), [(refuse_seven, "found 7"), (die_at_seven, "worker process was killed")])
def test_errors(work, message):
    with pytest.raises(UserError, match=message):
        list(in_order(work, range(40), 2, 2))
