"""Results that threads make in any order are stored in one."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.threads import InOrder, Stopped
from tests.waiting import SECONDS


@given(order=st.permutations(range(12)), workers=st.integers(1, 4))
def test_whatever_order_results_come_in_they_are_stored_in_theirs(
    order: list[int], workers: int
) -> None:
    stored: list[int] = []
    line = InOrder(stored.append)
    with ThreadPoolExecutor(workers) as pool:
        for number in order:
            pool.submit(line.put, number, number)
        line.wait(len(order))
    assert stored == list(range(12))


def test_nobody_stores_while_another_does_and_its_thread_stores_what_waits() -> None:
    stored: list[tuple[int, int]] = []
    started, go_on = threading.Event(), threading.Event()

    def store(number: int) -> None:
        if number == 0:
            started.set()
            assert go_on.wait(SECONDS)
        stored.append((number, threading.get_ident()))

    line = InOrder(store)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(line.put, 0, 0)
        assert started.wait(SECONDS)
        line.put(1, 1)  # returns at once
        assert stored == []
        go_on.set()
        first.result(SECONDS)
    assert [number for number, _ in stored] == [0, 1]
    assert len({thread for _, thread in stored}) == 1


def test_what_goes_wrong_while_storing_reaches_the_one_who_waits_and_nothing_follows() -> None:
    stored: list[int] = []

    def store(number: int) -> None:
        if number == 1:
            raise OSError("disk full")
        stored.append(number)

    line = InOrder(store)
    line.put(2, 2)
    line.put(0, 0)
    with pytest.raises(OSError, match="disk full") as caught:
        line.put(1, 1)
    line.fail(caught.value)
    with pytest.raises(Stopped):
        line.put(3, 3)
    with pytest.raises(OSError, match="disk full"):
        line.wait(4)
    line.close()
    assert stored == [0]


def test_close_returns_only_when_no_thread_stores_any_more() -> None:
    stored: list[int] = []
    started, go_on = threading.Event(), threading.Event()

    def store(number: int) -> None:
        started.set()
        assert go_on.wait(SECONDS)
        stored.append(number)

    line = InOrder(store)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(line.put, 0, 0)
        assert started.wait(SECONDS)
        line.put(1, 1)
        closed = pool.submit(line.close)
        assert not closed.done()
        go_on.set()
        closed.result(SECONDS)
    assert stored == [0]


@given(parts=st.lists(st.integers(1, 9), min_size=1, max_size=6), workers=st.integers(1, 4))
def test_a_result_in_parts_is_stored_in_order_and_few_parts_of_others_wait(
    parts: list[int], workers: int
) -> None:
    stored: list[tuple[int, int]] = []
    line = InOrder(stored.append)

    def make(number: int) -> None:
        for part in range(parts[number]):
            line.put(number, (number, part), last=part == parts[number] - 1)

    with ThreadPoolExecutor(workers) as pool:
        for number in range(len(parts)):
            pool.submit(make, number)
        line.wait(len(parts))
    assert stored == [(number, part) for number, n in enumerate(parts) for part in range(n)]
