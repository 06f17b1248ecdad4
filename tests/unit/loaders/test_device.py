"""PinnedRing and check_device: layouts, order, errors without an accelerator, and CUDA if any."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.device import PinnedRing, Slot, check_device
from loaders.errors import DeviceError, RingClosedError, SelectionError, ShardsError

RECORD = np.dtype([("a", "<u2"), ("b", "<i4"), ("c", "u1")])
DTYPES = ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "?"]
DEVICES = ["cpu"] + [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def send(ring: PinnedRing, slot: Slot) -> dict[str, torch.Tensor]:
    """Copy one batch and hand it to the current stream at once."""
    return ring.start(slot).wait()


def layout_of(batch: dict[str, NDArray[Any]]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (array.shape, array.dtype) for name, array in batch.items()}


def random_batch(number: int, size: int) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(number)
    return {
        "image": random.integers(0, 256, (size, 8, 6, 3), dtype=np.uint8),
        "label": random.integers(0, 65536, size).astype("<u2"),
    }


def fill(slot: Slot, batch: dict[str, NDArray[Any]]) -> Slot:
    for name, array in slot.arrays.items():
        array[...] = batch[name]
    return slot


def same(tensors: dict[str, torch.Tensor], batch: dict[str, NDArray[Any]]) -> bool:
    return tensors.keys() == batch.keys() and all(
        np.array_equal(tensors[name].cpu().numpy(), array) and tensors[name].shape == array.shape
        for name, array in batch.items()
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_stored_dtype_arrives_as_stored(device: str, dtype: str) -> None:
    values = np.arange(24).reshape(4, 3, 2).astype(dtype)
    ring = PinnedRing(device)
    (sent,) = send(
        ring, fill(ring.acquire({"x": (values.shape, values.dtype)}), {"x": values})
    ).values()
    assert sent.device == torch.device(device)
    assert sent.is_contiguous()
    assert sent.cpu().numpy().dtype == values.dtype
    assert np.array_equal(sent.cpu().numpy(), values)


def test_a_packed_record_arrives_as_its_bytes() -> None:
    rows = np.array([(1, -2, 3), (65535, 7, 255)], dtype=RECORD)
    ring = PinnedRing("cpu")
    sent = send(ring, fill(ring.acquire({"row": (rows.shape, RECORD)}), {"row": rows}))["row"]
    assert sent.dtype == torch.uint8
    assert sent.shape == (2, RECORD.itemsize)
    assert sent.numpy().tobytes() == rows.tobytes()


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    slots=st.integers(1, 4),
    ahead=st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_batches_of_any_sizes_arrive_whole_and_in_order(
    sizes: list[int], slots: int, ahead: bool
) -> None:
    ring = PinnedRing("cpu", slots)
    batches = [random_batch(number, size) for number, size in enumerate(sizes)]
    filled = (fill(ring.acquire(layout_of(batch)), batch) for batch in batches)
    sent = list(ring.send_ahead(filled) if ahead else (send(ring, slot) for slot in filled))
    # Compared at the end: a batch that shared memory with a later one would have changed by now.
    assert len(sent) == len(batches)
    assert all(same(tensors, batch) for tensors, batch in zip(sent, batches, strict=True))


@given(
    fields=st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.tuples(st.lists(st.integers(0, 4), max_size=4).map(tuple), st.sampled_from(DTYPES)),
        max_size=5,
    )
)
@settings(deadline=None, max_examples=50)
def test_a_slot_has_one_aligned_writable_array_a_field_and_none_overlap(
    fields: dict[str, tuple[tuple[int, ...], str]],
) -> None:
    ring = PinnedRing("cpu", 1)
    slot = ring.acquire({name: (shape, np.dtype(dtype)) for name, (shape, dtype) in fields.items()})
    assert list(slot.arrays) == list(fields)
    for number, (name, array) in enumerate(slot.arrays.items()):
        assert (array.shape, array.dtype) == (fields[name][0], np.dtype(fields[name][1]))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.flags.aligned
        array[...] = number
    for number, array in enumerate(slot.arrays.values()):
        assert (array == np.asarray(number).astype(array.dtype)).all()
    assert send(ring, slot).keys() == fields.keys()


def test_a_batch_that_is_not_larger_reuses_the_memory() -> None:
    ring = PinnedRing("cpu", 1)

    def address(size: int) -> int:
        slot = ring.acquire(layout_of(random_batch(0, size)))
        ring.release(slot)
        return int(slot.arrays["image"].__array_interface__["data"][0])

    full = address(8)
    address(0)
    assert [address(size) for size in (3, 1, 8)] == [full, full, full]


def test_send_ahead_starts_the_next_copy_before_it_yields_and_no_more() -> None:
    ring = PinnedRing("cpu", 3)
    asked = []

    def slots() -> Iterator[Slot]:
        for number in range(5):
            asked.append(number)
            batch = random_batch(number, 2)
            yield fill(ring.acquire(layout_of(batch)), batch)

    sent = ring.send_ahead(slots())
    for number in range(5):
        assert same(next(sent), random_batch(number, 2))
        assert asked == list(range(min(number + 2, 5)))
    assert next(sent, None) is None


def test_acquire_waits_until_a_slot_is_handed_on_by_the_other_thread() -> None:
    ring = PinnedRing("cpu", 2)
    filled: queue.Queue[Slot | None] = queue.Queue()

    def gather() -> None:
        for number in range(50):
            batch = random_batch(number, number % 4)
            filled.put(fill(ring.acquire(layout_of(batch)), batch))
        filled.put(None)

    thread = threading.Thread(target=gather)
    thread.start()
    sent = list(ring.send_ahead(iter(filled.get, None)))
    thread.join()
    assert all(same(t, random_batch(k, k % 4)) for k, t in enumerate(sent))
    assert len(sent) == 50


def test_after_an_early_break_released_slots_serve_the_next_epoch() -> None:
    ring = PinnedRing("cpu", 2)
    layout = layout_of(random_batch(0, 2))
    first, second = ring.acquire(layout), ring.acquire(layout)
    send(ring, first)
    ring.release(second)
    again = [ring.acquire(layout) for _ in range(2)]
    assert len(again) == 2


def test_close_ends_a_blocked_acquire_and_every_later_one() -> None:
    ring = PinnedRing("cpu", 1)
    layout = layout_of(random_batch(0, 2))
    slot = ring.acquire(layout)
    outcome: queue.Queue[Exception | Slot] = queue.Queue()

    def gather() -> None:
        try:
            outcome.put(ring.acquire(layout))
        except RingClosedError as error:
            outcome.put(error)

    thread = threading.Thread(target=gather)
    thread.start()
    ring.close()
    thread.join()
    assert isinstance(outcome.get(), RingClosedError)
    ring.release(slot)
    with pytest.raises(RingClosedError, match="closed"):
        ring.acquire(layout)


def test_a_slot_is_handed_on_exactly_once_and_to_its_own_ring() -> None:
    ring, other = PinnedRing("cpu"), PinnedRing("cpu")
    layout = layout_of(random_batch(0, 2))
    sent, released, foreign = ring.acquire(layout), ring.acquire(layout), other.acquire(layout)
    send(ring, sent)
    ring.release(released)
    for slot in (sent, released, foreign):
        with pytest.raises(DeviceError, match="exactly once"):
            ring.start(slot)
        with pytest.raises(DeviceError, match="exactly once"):
            ring.release(slot)


@pytest.mark.parametrize("dtype", ["U3", "S4", "O", "M8[s]", ">u2", [("a", "O")]])
def test_a_dtype_that_cannot_travel_names_its_field_and_costs_no_slot(dtype: Any) -> None:
    ring = PinnedRing("cpu", 1)
    with pytest.raises(SelectionError, match="field 'name'"):
        ring.acquire({"name": ((2,), np.dtype(dtype))})
    assert ring.acquire({"name": ((2,), np.dtype("u1"))}).arrays["name"].shape == (2,)


@pytest.mark.parametrize("slots", [0, -1])
def test_a_ring_without_slots_is_refused(slots: int) -> None:
    with pytest.raises(DeviceError, match=f"slots is {slots}, expected at least 1"):
        PinnedRing("cpu", slots)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:99", "'cuda:99' is not available: .* sees . cuda device"),
        ("xpu:99", "'xpu:99' is not available: .* sees . xpu device"),
        ("cpu:1", "'cpu:1' is not available: .* sees 1 cpu device"),
        ("gpu", "'gpu' is unknown to torch"),
        ("meta", "'meta' is unknown to torch"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        PinnedRing(device)
    assert isinstance(caught.value, ShardsError)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_is_there_is_itself(device: str) -> None:
    assert check_device(device) == check_device(torch.device(device)) == torch.device(device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_batches_stay_intact_behind_a_busy_stream() -> None:
    ring = PinnedRing("cuda")
    batches = [random_batch(number, number % 4) for number in range(60)]

    def slots() -> Iterator[Slot]:
        for batch in batches:
            yield fill(ring.acquire(layout_of(batch)), batch)

    copies = []
    for tensors in ring.send_ahead(slots()):
        # In cycles: the clones below are queued and not run when the next copy starts.
        torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
        copies.append({name: tensor.clone() for name, tensor in tensors.items()})
        del tensors
    assert all(same(copy, batch) for copy, batch in zip(copies, batches, strict=True))
