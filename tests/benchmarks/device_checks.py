"""What has to hold on a device: batches of every residency, normalized and cut as on a CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from loaders import (
    Augment,
    ImageTypeError,
    Loader,
    Mix,
    Normalize,
    NormalizedModel,
    SelectionError,
    open_dataset,
    open_tokens,
)
from loaders.residency import Residency
from tests.benchmarks.device_pictures import check_pictures
from tests.benchmarks.device_set import write_images
from tests.token_stores import write_stream

_ULP = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
_GROWN = 1 << 23
"""Bytes of device memory that batches may come to take, as they meet in time: 4 small blocks."""

_CUTS: tuple[dict[str, Any], ...] = (
    {},
    {"size": 20, "padding": 4},
    {"size": (17, 24), "scale": (0.08, 1.0)},
)


def check_all(scratch: Path, device: torch.device) -> list[str]:
    """Run every check, and return a line for each; the first that fails raises."""
    places: list[Residency] = ["disk", "ram", "device"]
    if device.type == "cuda":
        places.insert(2, "pinned")
    eight = open_dataset(write_images(scratch / "eight", 300, 32))
    sixteen = open_dataset(write_images(scratch / "sixteen", 90, 31, dtype="uint16"))
    ids = np.random.default_rng(0).integers(0, 50_000, 4000).tolist()
    stream = open_tokens(write_stream(scratch / "stream", [[ids[:1500]], [ids[1500:]]]))
    datasets: dict[str, Any] = {
        "uint8 images": eight,
        "uint16 images": sixteen,
        "mixed images": Mix([(eight, 1), (eight, 2)]),
        "windows of tokens": stream.blocks(64),
        "overlapping windows": stream.blocks(64, stride=7, tail="pad"),
    }
    lines = []
    for name, dataset in datasets.items():
        for place in places:
            for options in ({}, {"last": "pad"}, {"rank": 1, "world_size": 2}):
                _check_batches(dataset, place, device, options)
            lines.append(f"{name}, {place}: the batches of the CPU")
    for dataset in (eight, sixteen):
        for place in places:
            worst = max(_normalized_ulps(dataset, place, device, dtype) for dtype in _ULP)
            lines.append(f"normalized {dataset.views[0].field.dtype}, {place}: {worst} ulp")
            for cut in _CUTS:
                _check_cut(dataset, place, device, cut)
            lines.append(f"augmented {dataset.views[0].field.dtype}, {place}: as on the CPU")
    lines += check_pictures(scratch / "pictures", device, places)
    _check_kept(eight, device)
    lines.append("100 batches that were kept stay as they were")
    if device.type == "cuda":
        for place in places:
            _check_memory(eight, place, device)
        lines.append("device memory does not grow over epochs")
    lines += _check_guards(eight, device)
    return lines


def _check_batches(
    dataset: Any, place: Residency, device: torch.device, options: dict[str, Any]
) -> None:
    expected = Loader(dataset, 8, seed=1, **options)
    loader = Loader(dataset, 8, seed=1, device=device, residency=place, **options)
    for _ in range(2):
        for batch, known in zip(loader, expected, strict=True):
            assert batch.keys() == known.keys()
            for name, value in known.items():
                found = batch[name]
                if isinstance(value, torch.Tensor):
                    assert found.device == device
                    assert torch.equal(found.cpu(), value), (place, name)
                else:
                    assert found == value, (place, name)


def _normalized_ulps(
    dataset: Any, place: Residency, device: torch.device, dtype: torch.dtype
) -> float:
    """Return how far normalized images are from those of float64, in units in the last place."""
    normalize = Normalize.for_dataset(dataset, dtype=dtype)
    loader = Loader(dataset, 8, device=device, residency=place, normalize=normalize)
    mean, std = normalize.mean.double(), normalize.std.double()
    on_device = normalize.to(device)
    worst = 0.0
    for batch, stored in zip(loader, Loader(dataset, 8), strict=True):
        image = batch["image"]
        assert image.dtype == dtype
        assert image.is_contiguous(memory_format=torch.channels_last)
        levels = 255 if stored["image"].dtype == torch.uint8 else 65535
        exact = (stored["image"].double() / levels - mean[:, None, None]) / std[:, None, None]
        # Where the mean is taken off from nearly itself, float32 leaves 2 ulps of the mean.
        room = exact.abs().log2().floor().exp2() * _ULP[dtype] + 2 * _ULP[torch.float32]
        worst = max(worst, float(((image.cpu().double() - exact).abs() / room).max()))
        whole = on_device(stored["image"].to(device))
        assert torch.equal(whole, image), f"{place}: not what Normalize gives by itself"
    assert worst <= 1, f"{place}: {worst} ulp"
    return round(worst, 3)


def _check_cut(dataset: Any, place: Residency, device: torch.device, cut: dict[str, Any]) -> None:
    augment = Augment(**cut)
    expected = Loader(dataset, 8, seed=5, augment=augment)
    loader = Loader(dataset, 8, seed=5, augment=augment, device=device, residency=place)
    normalize = Normalize.for_dataset(dataset, dtype=torch.float32)
    both = Loader(
        dataset,
        8,
        seed=5,
        augment=augment,
        normalize=normalize,
        device=device,
        residency=place,
    )
    for batch, floats, known in zip(loader, both, expected, strict=True):
        assert torch.equal(batch["image"].cpu(), known["image"]), (place, cut)
        shown = normalize(known["image"])
        torch.testing.assert_close(floats["image"].cpu(), shown, atol=1e-6, rtol=0)


def _check_kept(dataset: Any, device: torch.device) -> None:
    for place in ("disk", "device"):
        normalize = Normalize.for_dataset(dataset, dtype=torch.float32)
        loader = Loader(dataset, 3, device=device, residency=place, normalize=normalize)
        kept = [batch["image"] for batch in loader]
        loader.set_epoch(0)
        for image, batch in zip(kept, loader, strict=True):
            assert torch.equal(image, batch["image"]), place


def _check_memory(dataset: Any, place: Residency, device: torch.device) -> None:
    normalize = Normalize.for_dataset(dataset, dtype=torch.float32)
    loader = Loader(dataset, 8, device=device, residency=place, normalize=normalize)
    reserved = []
    for _ in range(20):
        for _ in loader:
            pass
        torch.cuda.synchronize(device)
        reserved.append(torch.cuda.memory_reserved(device))
    assert reserved[-1] - reserved[1] <= _GROWN, f"{place}: {reserved} bytes"


class _Huge:
    """A dataset of 2**39 images, more than any memory holds."""

    split = "train"
    path = Path("huge")
    made_nbytes = 0

    def __init__(self, dataset: Any) -> None:
        self.views = dataset.views
        self.gather_into = dataset.gather_into
        self.show = dataset.show

    def __len__(self) -> int:
        return 1 << 39


def _check_guards(dataset: Any, device: torch.device) -> list[str]:
    normalize = Normalize.for_dataset(dataset)
    image = next(iter(Loader(dataset, 4, device=device, normalize=normalize)))["image"]
    model = NormalizedModel(normalize, torch.nn.Flatten()).to(device)
    huge = _Huge(dataset)
    guards: list[tuple[type[Exception], Any]] = [
        (ImageTypeError, lambda: model(image)),
        (SelectionError, lambda: Loader(huge, 4, device=device, residency="device")),
        (SelectionError, lambda: Loader(dataset, 4, device=device, residency="vram")),  # type: ignore[arg-type]
    ]
    lines = []
    for kind, call in guards:
        try:
            call()
        except kind as error:
            lines.append(f"refused: {error}")
        else:
            raise AssertionError(f"expected {kind.__name__}")
    return lines
