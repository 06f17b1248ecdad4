import multiprocessing
import pickle  # noqa: TID251
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from loaders import (
    Loader,
    Mix,
    SelectionError,
    ShardDataset,
    Weighted,
    open_dataset,
    open_table,
    open_tokens,
)
from loaders.state import fingerprint_of
from tests.table_stores import write_people
from tests.token_stores import write_chat, write_fixed, write_packed, write_stream


@pytest.fixture
def windows(tmp_path: Path):
    """30 windows of 4 tokens, whose first ids are 0, 4, 8, ..."""
    ids = list(range(30 * 4 + 1))
    return open_tokens(write_stream(tmp_path / "w", [[ids[:50]], [ids[50:55], ids[55:]]])).blocks(4)


def numbers(batches) -> list[int]:
    return [int(row[0]) // 4 for batch in batches for row in batch["x"]]


def every_dataset(folder: Path, images: Path) -> dict:
    """Return a dataset of every kind, each with the entry that names its samples."""
    chats = [[([5, 6], [0, 1]), ([7, 8, 9], [1, 1, 0])], [([1], [1]), ([3, 4], [0, 1])]]
    documents = [[[5, 6], [7, 8, 9]], [[1], [3, 4, 9]]]
    stream = open_tokens(write_stream(folder / "stream", documents))
    chat = open_tokens(write_chat(folder / "chat", chats))
    return {
        "images": open_dataset(images, size=32),
        "table": open_table(write_people(folder / "people", 20)),
        "documents": stream.documents(),
        "blocks": stream.blocks(2),
        "padded": stream.padded(4),
        "fixed": open_tokens(write_fixed(folder / "fixed", documents, 4)).padded(),
        "packed": open_tokens(write_packed(folder / "packed", [documents], 9)).packed(),
        "chat": chat.chat(5),
    }


def test_a_selected_sample_is_the_sample_it_stands_for_in_every_kind_of_dataset(
    tmp_path: Path, dataset_path: Path
) -> None:
    for name, ds in every_dataset(tmp_path, dataset_path).items():
        last = len(ds) - 1
        wanted = [last, 0, last, 1]
        selected = ds.select(wanted)
        assert type(selected) is type(ds)
        assert len(selected) == 4
        expected, found = ds.__getitems__(wanted), selected.__getitems__([0, 1, 2, 3])
        reloaded = pickle.loads(pickle.dumps(selected)).__getitems__([0, 1, 2, -1])
        (batch,) = Loader(selected, 4, shuffle=False)
        for other in (found, reloaded, batch):
            assert repr(dict(other)) == repr(dict(expected)), name
        assert repr(selected[-1]) == repr(ds[1])
        assert "4 samples of" in repr(selected)
        with pytest.raises(IndexError, match="out of range for 4 samples"):
            selected[4]


def test_a_selection_keeps_what_describes_the_whole(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    selected = ds.select(range(3))
    assert isinstance(selected, ShardDataset)
    assert selected.classes == ds.classes
    assert selected.mean == ds.mean
    assert selected.std == ds.std
    assert selected.indices == range(3)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([3, 1, 1], [3, 1, 1]),
        ([-1, -30], [29, 0]),
        (np.array([7], np.uint8), [7]),
        (torch.tensor([2, 5]), [2, 5]),
        (range(20, 5, -5), [20, 15, 10]),
        (range(-3, 0), [27, 28, 29]),
        (range(-1, 2), [29, 0, 1]),
        (slice(None, None, -10), [29, 19, 9]),
        (slice(25, 99), [25, 26, 27, 28, 29]),
        ([n % 7 == 0 for n in range(30)], [0, 7, 14, 21, 28]),
        (torch.arange(30) >= 28, [28, 29]),
    ],
)
def test_indices_masks_ranges_and_slices_select(windows, wanted, expected: list[int]) -> None:
    assert numbers([windows.select(wanted).__getitems__(range(len(expected)))]) == expected


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([30], "index 30 is out of range for 30 samples"),
        ([0, -31], "index -31 is out of range"),
        (range(25, 31), "index 30 is out of range"),
        (range(10**15), "index 999999999999999 is out of range"),
        (np.array([2**64 - 1], np.uint64), "out of range"),
        ([1.0], "expected a list of integers, got float64"),
        ([True] * 29, r"a mask of shape \[29\] for 30 samples"),
        (np.ones((30, 1), bool), r"a mask of shape \[30, 1\]"),
        ([[1, 2]], "expected a list of integers"),
        ([[1], [1, 2]], "select takes integers or booleans"),
        (5, "expected a list of integers"),
        ("cat", "expected a list of integers"),
        ([], "no sample is selected"),
        (range(5, 5), "no sample is selected"),
        ([False] * 30, "no sample is selected"),
    ],
)
def test_what_cannot_be_selected_is_refused_in_one_sentence(windows, wanted, message: str) -> None:
    with pytest.raises(SelectionError, match=message) as caught:
        windows.select(wanted)
    assert "\n" not in str(caught.value)
    assert str(windows.path) in str(caught.value)


def test_indices_or_a_label_not_both_and_not_neither(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    for options in ({}, {"indices": [0], "label": 0}):
        with pytest.raises(SelectionError, match="either indices or label"):
            ds.select(**options)


def test_classes_select_by_name_and_number(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    labels = ds.read_labels()
    assert labels.tolist() == [ds[i]["label"] for i in range(len(ds))]
    for number, name in enumerate(ds.classes):
        for selected in (ds.select(label=name), ds.select(label=number), ds.subset("class", name)):
            assert [s["label"] for s in map(selected.__getitem__, range(len(selected)))] == [
                number
            ] * int((labels == number).sum())
    both = ds.subset("class", [ds.classes[1], np.int64(0)])
    assert set(both.read_labels().tolist()) == {0, 1}
    backwards = ds.select(slice(None, None, -1))
    assert backwards.read_labels().tolist() == labels[::-1].tolist()
    once_more = backwards.select(label=1)
    assert [once_more[i]["key"] for i in range(len(once_more))] == [
        backwards[i]["key"] for i in range(len(ds)) if labels[::-1][i] == 1
    ]


def test_fields_and_values_that_are_not_there_are_named(
    tmp_path: Path, dataset_path: Path, windows
) -> None:
    ds = open_dataset(dataset_path, size=32)
    people = open_table(write_people(tmp_path / "people"))
    for selecting, message in [
        (lambda: ds.subset("color", ["red"]), "no field 'color'"),
        (lambda: ds.select(label="horse"), "class has no value 'horse'; it has 'ant', 'bee'"),
        (lambda: ds.select(label=99), "class has no value 99"),
        (lambda: ds.select(label=-1), "class has no value -1"),
        (lambda: ds.subset("class", [True]), "class has no value True"),
        (lambda: ds.subset("class", []), r"no sample of train has class in \[\]"),
        (lambda: windows.select(label=0), "no field 'class'"),
        (windows.read_labels, "no field 'class'"),
        (lambda: people.subset("age", [18]), "no field 'age'"),
        (lambda: people.subset("zip", ["1"]), "no field 'zip'"),
        (lambda: people.subset("city", ["Atlantis"]), "city has no value 'Atlantis'"),
        (lambda: people.subset("city", [2]), "city has no value 2"),
    ]:
        with pytest.raises(SelectionError, match=message):
            selecting()


def test_tables_select_by_class_and_by_any_column_of_categories(tmp_path: Path) -> None:
    people = open_table(write_people(tmp_path / "people"))
    labels = people.read_labels()
    assert labels.tolist() == people.__getitems__(range(50))["target"].tolist()
    for number, name in enumerate(people.classes):
        selected = people.select(label=name)
        assert len(selected) == int((labels == number).sum())
        assert set(selected.read_labels().tolist()) == {number}
    column = people.categorical_names.index("city")
    codes = people.__getitems__(range(50))["categorical"][:, column].numpy()
    values = people.vocabulary("city")
    for code in np.unique(codes[codes >= 2]).tolist():
        selected = people.subset("city", [values[code - 2]])
        found = selected.__getitems__(range(len(selected)))["categorical"][:, column]
        assert found.tolist() == [code] * int((codes == code).sum())


def test_a_million_indices_cost_four_bytes_each(tmp_path: Path) -> None:
    ids = np.arange(1_000_003) % 999
    windows = open_tokens(write_stream(tmp_path / "many", [[ids]])).blocks(2, stride=1)
    wanted = np.random.default_rng(0).permutation(len(windows))
    tracemalloc.start()
    selected = windows.select(wanted)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4.1 * len(windows)
    assert peak < 40 * len(windows)
    assert selected.indices.dtype == np.int32
    assert not selected.indices.flags.writeable
    loader = Loader(selected, 1000, shuffle=True)
    tracemalloc.start()
    iterator = iter(loader)
    next(iterator)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    iterator.close()
    assert peak < 4 * len(windows)
    assert windows.select(range(5, 900_000)).indices == range(5, 900_000)
    assert windows.select(np.arange(5, 900_000)).indices == range(5, 900_000)
    assert len(pickle.dumps(windows.select(range(5, 900_000)))) < 2000


def test_a_state_belongs_to_one_selection(windows) -> None:
    chosen = windows.select([4, 9, 1, 6])
    state = Loader(chosen, 2).state_dict()
    Loader(windows.select(np.array([4, 9, 1, 6])), 2).load_state_dict(state)
    for other in (
        windows.select([4, 9, 6, 1]),
        windows.select(range(4)),
        windows.select(slice(0, 30, 8)),
    ):
        with pytest.raises(SelectionError, match="selection"):
            Loader(other, 2).load_state_dict(state)
    everything = fingerprint_of(windows)
    assert fingerprint_of(windows.select(range(30))) == everything
    assert fingerprint_of(windows.select([True] * 30)) == everything
    ranges = [
        windows.select(r) for r in (range(9), range(1, 10), range(0, 18, 2), range(8, -1, -1))
    ]
    assert len({fingerprint_of(ds) for ds in ranges}) == 4


@pytest.mark.parametrize("shuffle", [True, False, "block"])
def test_a_loader_visits_every_selected_sample_once_and_resumes(windows, shuffle) -> None:
    wanted = [29, 3, 8, 15, 11, 2, 27, 20, 9]
    options = {"shuffle": shuffle, "seed": 3}
    whole = numbers(Loader(windows.select(wanted), 1, **options))
    assert sorted(whole) == sorted(wanted)
    assert (whole == wanted) == (shuffle is False)
    first = [Loader(windows.select(wanted), 2, rank=r, world_size=2, **options) for r in (0, 1)]
    ranks = [iter(loader) for loader in first]
    seen = [i for rank in ranks for i in numbers([next(rank)])]
    assert sorted(seen) == sorted(whole[:4])
    again = Loader(windows.select(wanted), 5, **options)
    again.load_state_dict(first[0].state_dict())
    assert numbers(again) == whole[4:]


def test_selections_are_mixed_by_weight(windows) -> None:
    low, high = windows.select(range(4)), windows.select(range(29, 19, -1))
    mix = Mix({low: 1, high: 2}, epoch_size=60)
    seen = numbers(Loader(mix, 6, seed=1))
    assert sorted(set(seen)) == [*range(4), *range(20, 30)]
    assert sum(number < 4 for number in seen) == 20
    in_order = numbers(Loader(mix, 60, shuffle=False))
    assert [n for n in in_order if n >= 4][:10] == [*range(29, 19, -1)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_and_samplers_of_torch_take_selections(windows, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    selected = windows.select([9, 8, 7, 3, 3, 1])
    loader = DataLoader(selected, batch_size=2, num_workers=1, multiprocessing_context=method)
    assert numbers(loader) == [9, 8, 7, 3, 3, 1]
    ranks = [DistributedSampler(selected, 2, rank, shuffle=False) for rank in (0, 1)]
    seen = [numbers(DataLoader(selected, batch_size=3, sampler=sampler)) for sampler in ranks]
    assert seen == [[9, 7, 3], [8, 3, 1]]


@pytest.mark.parametrize("residency", ["ram", "device"])
def test_selections_and_weights_are_served_from_wherever_the_samples_lie(
    windows, residency: str
) -> None:
    selected = windows.select([29, 3, 8, 15, 3])
    weighted = Weighted(selected, [1, 2, 3, 4, 5])
    for ds in (selected, weighted, Mix({selected: 1, weighted: 1})):
        options = {"seed": 2, "drop_last": False}
        expected = numbers(Loader(ds, 2, **options))
        assert numbers(Loader(ds, 2, residency=residency, **options)) == expected
