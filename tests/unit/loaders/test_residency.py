import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders import (
    Loader,
    Mix,
    SelectionError,
    estimate_residency,
    feed,
    open_dataset,
    open_table,
    open_tokens,
    page_cache,
    progress,
    residency,
    resident,
)
from loaders.finish import Finish
from loaders.free_memory import free_ram
from loaders.page_cache import keep_in_ram
from loaders.sampling import Share
from tests.table_stores import write_people
from tests.token_stores import write_stream

PLACES = ["ram", "device"]


@pytest.fixture(scope="module")
def datasets(
    make_dataset: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("resident")
    images = [open_dataset(make_dataset(container), size=32) for container in ("tensor", "zarr")]
    ids = list(range(101))
    stream = open_tokens(write_stream(folder / "a", [[ids[:30]], [ids[30:41], ids[41:]]]))
    other = open_tokens(write_stream(folder / "b", [[list(range(500, 540))]]))
    return {
        "images": images[0],
        "images in zarr": images[1],
        "mixed images": Mix({images[0]: 0.7, images[1]: 0.3}),
        "table": open_table(write_people(folder / "people", 50, shards=[20, 0, 1, 29])),
        "blocks": stream.blocks(8),
        "overlapping padded blocks": stream.blocks(8, stride=3, tail="pad"),
        "mixed blocks": Mix({stream.blocks(8): 1, other.blocks(8): 2}),
    }


KINDS = [
    "images",
    "images in zarr",
    "mixed images",
    "table",
    "blocks",
    "overlapping padded blocks",
    "mixed blocks",
]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value.nan_to_num(-7), other[name].nan_to_num(-7))
        and value.stride() == other[name].stride()
        and value.dtype == other[name].dtype
        if isinstance(value, torch.Tensor)
        else value == other[name]
        for name, value in one.items()
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": False, "drop_last": False},
        {"last": "pad", "rank": 1, "world_size": 2},
        {"last": "wrap", "rank": 0, "world_size": 3, "seed": 9},
    ],
    ids=str,
)
def test_batches_are_those_of_disk(
    datasets: dict[str, Any], place: Any, kind: str, options: dict[str, Any]
) -> None:
    disk = Loader(datasets[kind], 3, **options)
    loader = Loader(datasets[kind], 3, residency=place, **options)
    assert loader.residency == place
    for _ in range(2):
        for batch, expected in zip(loader, disk, strict=True):
            assert same(batch, expected)
        assert loader.state_dict() == disk.state_dict()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_one_residency_continues_in_another(
    datasets: dict[str, Any], place: Any, kind: str
) -> None:
    disk = Loader(datasets[kind], 2, seed=3)
    whole = list(disk)
    stream = iter(Loader(datasets[kind], 2, seed=3, residency=place))
    other = Loader(datasets[kind], 2, seed=3, residency=place)
    stopped = Loader(datasets[kind], 2, seed=3)
    taken = iter(stopped)
    for _ in range(3):
        next(taken)
        next(stream)
    other.load_state_dict(stopped.state_dict())
    rest = list(other)
    assert len(rest) == len(whole) - 3
    assert all(same(batch, expected) for batch, expected in zip(rest, whole[3:], strict=True))


def test_samples_are_read_in_pieces_of_any_size(
    datasets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for nbytes in (1, 5000, 1 << 30):
        monkeypatch.setattr(resident, "_PIECE", nbytes)
        loader = Loader(datasets["images"], 3, residency="device")
        assert all(map(same, loader, Loader(datasets["images"], 3)))


def test_what_was_read_is_not_read_again(tmp_path: Path, make_dataset: Callable[..., Path]) -> None:
    path = make_dataset(fresh=True)
    loader = Loader(open_dataset(path, size=32), 3, shuffle=False, residency="device")
    first = list(loader)
    for shard in (path / "train").glob("*.image_32.npy"):
        shard.unlink()
    assert all(map(same, loader, first))


def test_a_batch_that_is_changed_changes_no_other(datasets: dict[str, Any]) -> None:
    loader = Loader(datasets["images"], 3, shuffle=False, residency="device")
    copies = [batch["image"].clone() for batch in loader]
    for batch in loader:
        batch["image"].zero_()
    assert all(torch.equal(b["image"], c) for b, c in zip(loader, copies, strict=True))


def test_pinned_and_unknown_places_are_refused_on_the_cpu(datasets: dict[str, Any]) -> None:
    with pytest.raises(SelectionError, match=r'"pinned" needs a CUDA device.*use residency="ram"'):
        Loader(datasets["images"], 3, residency="pinned")
    with pytest.raises(SelectionError, match=r"residency='gpu': expected one of .*'device'"):
        Loader(datasets["images"], 3, residency="gpu")  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_with_the_bytes_wanted_and_free(
    datasets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = estimate_residency(datasets["blocks"]).row_nbytes
    assert wanted == len(datasets["blocks"]) * 9 * 2
    monkeypatch.setattr(residency, "free_ram", lambda: wanted - 1)
    message = f"train wants {wanted} bytes, RAM has {wanted - 1} free"
    with pytest.raises(SelectionError, match=message):
        Loader(datasets["blocks"], 3, residency="device")
    monkeypatch.setattr(residency, "free_ram", lambda: wanted)
    assert len(list(Loader(datasets["blocks"], 3, residency="device"))) == 4


def test_memory_that_went_since_the_loader_was_made_is_told_too(
    datasets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loader(datasets["blocks"], 3, residency="device")
    monkeypatch.setattr(residency, "free_ram", lambda: 10)
    with pytest.raises(SelectionError, match="RAM has 10 free"):
        next(iter(loader))
    monkeypatch.setattr(residency, "free_ram", lambda: 1 << 30)
    first = Loader(datasets["blocks"], 3)  # the pass that failed was none
    assert all(map(same, list(loader), list(first)))
    assert loader.state_dict() == first.state_dict()


def test_a_rank_that_comes_last_is_not_refused_for_the_copies_of_the_others(
    datasets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, device = datasets["images"], torch.device("cuda", 0)
    nbytes = estimate_residency(images).row_nbytes
    assert nbytes is not None
    left = [nbytes * 8]

    def estimate(dataset: Any, *, device: torch.device, world_size: int = 1) -> Any:
        return residency.ResidencyEstimate(
            device=device,
            ranks=world_size,
            row_nbytes=nbytes,
            stored_nbytes=nbytes,
            free_ram=left[0],
            free_device=0,
            can_pin=True,
        )

    def take(*arguments: object) -> None:
        left[0] -= nbytes

    monkeypatch.setattr(feed, "estimate_residency", estimate)
    monkeypatch.setattr(feed, "Resident", take)
    monkeypatch.setattr(feed, "side_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    for rank in range(8):
        share = Share(count=18, batch_size=1, rank=rank, world_size=8)
        feed.open_feed(images, share, device, residency="pinned", finish=Finish(None, None, 0))
    assert left == [0]
    share = Share(count=18, batch_size=1)
    with pytest.raises(SelectionError, match="RAM has 0 free"):
        feed.open_feed(images, share, device, residency="pinned", finish=Finish(None, None, 0))


def test_samples_of_many_lengths_are_refused_by_name_or_left_on_disk(
    datasets: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    documents = open_tokens(datasets["blocks"].path).documents()
    with pytest.raises(SelectionError, match=r"'tokens'.* differ in length.*use residency=\"ram\""):
        Loader(documents, 2, residency="device")
    estimate = estimate_residency(documents)
    assert estimate.row_nbytes is None
    assert estimate.choice == "ram"
    expected = list(Loader(documents, 2, drop_last=False))
    kept = Loader(documents, 2, drop_last=False, residency="ram")
    assert all(map(same, kept, expected))


def test_auto_says_once_what_it_took_and_why(
    datasets: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = Loader(datasets["images"], 3, residency="auto")
    assert loader.residency == "ram"
    list(loader)
    list(loader)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "residency ram: samples" in line]) == 1
    monkeypatch.setattr(residency, "free_ram", lambda: 1000)
    assert Loader(datasets["images"], 3, residency="auto").residency == "disk"
    assert "0.0 GiB of RAM free" in capsys.readouterr().err
    Loader(datasets["images"], 3, residency="auto", rank=1, world_size=2)
    assert capsys.readouterr().err == ""


def test_the_choice_on_a_gpu_follows_from_what_is_free() -> None:
    gib = 1 << 30

    def choice(rows: int | None, ram: int, device: int, ranks: int = 1, pin: bool = True) -> str:
        return residency.ResidencyEstimate(
            device=torch.device("cuda", 0),
            ranks=ranks,
            row_nbytes=rows,
            stored_nbytes=4 * gib,
            free_ram=ram * gib,
            free_device=device * gib,
            can_pin=pin,
        ).choice

    assert choice(4 * gib, 64, 16) == "device"
    assert choice(4 * gib, 64, 15) == "pinned"
    assert choice(4 * gib, 8, 15) == "pinned"
    assert choice(4 * gib, 8, 15, ranks=2) == "ram"
    assert choice(4 * gib, 64, 15, pin=False) == "ram"
    assert choice(None, 64, 140) == "ram"
    assert choice(4 * gib, 4, 1) == "disk"


def test_an_estimate_opens_no_shard(make_dataset: Callable[..., Path]) -> None:
    path = make_dataset(fresh=True)
    ds = open_dataset(path, size=32)
    for shard in (path / "train").iterdir():
        shard.unlink()
    estimate = estimate_residency(ds)
    row = 32 * 32 * 3 + sum(v.field.nbytes for v in ds.views if v.name != "image")
    assert estimate.row_nbytes == estimate.stored_nbytes == 18 * row
    assert estimate.free_ram > 0


def test_maps_hold_every_byte_of_the_samples_once(datasets: dict[str, Any]) -> None:
    for dataset in datasets.values():
        maps = list(chain.from_iterable(dataset.all_stretches()))
        stored = estimate_residency(dataset).stored_nbytes
        assert sum(array.nbytes for array in maps) == stored
        assert all(array.flags.c_contiguous and not array.flags.writeable for array in maps)
        assert len({array.ctypes.data for array in maps}) == len(maps)


def test_files_are_read_up_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_CHUNK", 1000)
    arrays = [np.zeros((7, 300), np.uint8), np.zeros(0, np.uint8), np.zeros(1500, np.uint16)]
    seen: list[int] = []
    assert keep_in_ram(arrays, 10_000, seen.append).nbytes == 5100
    assert seen == [1000, 2000, 2100, 3100, 4100, 5100]
    kept = keep_in_ram(arrays, 2500, seen.append)
    assert kept.nbytes == 2500
    assert 0 <= kept.locked <= 2500


def test_a_set_that_fits_in_part_is_read_in_part_and_says_so(
    datasets: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(residency, "free_ram", lambda: 20_000)
    loader = Loader(datasets["images"], 3, residency="ram")
    assert all(map(same, loader, Loader(datasets["images"], 3)))
    total = estimate_residency(datasets["images"]).stored_nbytes
    assert f"16,000 of {total:,} bytes fit, the rest is read from disk" in capsys.readouterr().err


def test_a_terminal_sees_the_bytes_counted_and_a_file_does_not(
    datasets: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(resident, "_PIECE", 1)
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.0)
    list(Loader(datasets["images"], 3, residency="device"))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    list(Loader(datasets["images"], 3, residency="device"))
    shown = capsys.readouterr().err
    assert shown.count("GiB read into memory") == 18
    assert shown.endswith("\r")
    list(Loader(datasets["images"], 3, residency="device", rank=1, world_size=2))
    assert capsys.readouterr().err == ""


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 64 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 65536),
        ({"proc/self/cgroup": "0::/\n"}, 65536),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "5\n",
                "sys/fs/cgroup/a/memory.max": "1000\n",
                "sys/fs/cgroup/a/memory.current": "900\n",
                "sys/fs/cgroup/a/memory.stat": "anon 9\ninactive_file 30\nactive_file 4\n",
            },
            134,
        ),
        (  # a container, whose own group is the top
            {
                "proc/self/cgroup": "0::/kube/pod7\n",
                "sys/fs/cgroup/memory.max": "700\n",
                "sys/fs/cgroup/memory.current": "100\n",
            },
            600,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "5000\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "4000\n",
                "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 50\ninactive_file 7\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000\n",
            },
            1050,
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "100\n",
                "sys/fs/cgroup/memory.current": "300\n",
            },
            0,
        ),
    ],
)
def test_free_ram_is_the_least_that_machine_and_groups_leave(
    tmp_path: Path, files: dict[str, str], free: int
) -> None:
    assert free_ram(write_files(tmp_path, files)) == free


def test_free_ram_of_this_machine_is_some() -> None:
    assert 0 < free_ram() < math.inf
