"""Rates of a `Loader` with a GPU: of every residency, of the fused passes, and beside a model.

    python -m tests.benchmarks.device_rate

checks first that batches are right there, then measures, and prints a table with what is wanted.
Makes its own data. `--device cpu --tiny` runs all of it small, where there is no GPU.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from loaders import (
    Augment,
    Loader,
    Normalize,
    estimate_residency,
    open_dataset,
)
from loaders.device_rows import kernels_for
from loaders.resident import Resident
from tests.benchmarks.device_checks import check_all
from tests.benchmarks.device_set import write_images
from tests.benchmarks.device_setting import (
    Setting,
    drawn_often,
    epoch_rates,
    seconds_of,
    tiny,
)
from tests.benchmarks.device_sweep import sweep
from tests.benchmarks.device_training import endless, seconds_a_step, training_step


def measure_links(setting: Setting) -> dict[str, float]:
    """Return bytes a second from page-locked memory to the device, and read and written there."""
    size = setting.batch_size * setting.nbytes
    pinned = setting.device.type == "cuda"
    host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    there = torch.empty(size, dtype=torch.uint8, device=setting.device)
    link = size / seconds_of(setting, lambda: there.copy_(host, non_blocking=True))
    large = torch.empty(8 * size, dtype=torch.uint8, device=setting.device)
    other = torch.empty_like(large)
    copy = 2 * large.numel() / seconds_of(setting, lambda: other.copy_(large))
    return {"link": link, "copy": copy}


def measure_loaders(setting: Setting, dataset: Any, links: dict[str, float]) -> Iterator[str]:
    """Yield a line for each residency: images a second, normalized on the device."""
    normalize = Normalize.for_dataset(dataset, dtype=torch.bfloat16)
    dataset = drawn_often(setting, dataset)
    for place in setting.places:
        loader = Loader(
            dataset,
            setting.batch_size,
            device=setting.device,
            residency=place,
            normalize=normalize,
        )
        rates = epoch_rates(setting, loader)
        rate = statistics.median(rates)
        of_link = rate * setting.nbytes / links["link"]
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        wanted = {"disk": "200,000 images/s", "pinned": "0.85 of the link"}.get(place, "")
        yield f"Loader {place:7} {rate:12,.0f} images/s ({spread}), {of_link:.3f} of the link" + (
            f"; wanted {wanted}" if wanted else ""
        )
    augment = Augment(setting.side, scale=(0.08, 1.0))
    for title, batch_size, cut in (
        ("batches 8 times as large", 8 * setting.batch_size, None),
        ("random resized crops", setting.batch_size, augment),
    ):
        loader = Loader(
            dataset,
            batch_size,
            device=setting.device,
            residency="device",
            normalize=normalize,
            augment=cut,
        )
        rate = statistics.median(epoch_rates(setting, loader))
        yield f"Loader device, {title} {rate:12,.0f} images/s"


def measure_passes(setting: Setting, dataset: Any, links: dict[str, float]) -> Iterator[str]:
    """Yield a line for each fused pass, of 8 batches at once: its launch is hidden then."""
    device, size = setting.device, 8 * setting.batch_size
    normalize = Normalize.for_dataset(dataset, dtype=torch.bfloat16).to(device)
    index = torch.randint(0, len(dataset), (size,), device=device)
    moved = size * setting.nbytes * 3  # a byte read, two written
    places = [place for place in setting.places if place != "disk"]
    for place in places:
        resident = Resident(dataset, place, device, lambda _: None)  # type: ignore[arg-type]
        seconds = seconds_of(setting, lambda r=resident: r.take(index, {"image": normalize}))
        rate = size / seconds
        wanted = "6,000,000 images/s" if place == "device" else "0.85 of the link"
        of_link = size * setting.nbytes / seconds / links["link"]
        yield (
            f"gather + normalize, {place:7} {rate:12,.0f} images/s, {of_link:.3f} of the link; "
            f"wanted {wanted}"
        )
    rows = resident.take(index, {})["image"]
    images = rows.permute(0, 3, 1, 2)
    seconds = seconds_of(setting, lambda: normalize(images))
    yield (
        f"normalize alone {seconds * 1e6:9.1f} microseconds for {size} images, "
        f"{seconds * links['copy'] / moved:.3f} of its bytes at the copy rate; wanted 1.25"
    )
    augment = Augment(setting.side, scale=(0.08, 1.0))
    boxes = augment.draw(index.cpu().numpy(), setting.side, setting.side)
    sent = torch.from_numpy(boxes).to(device)
    seconds = seconds_of(setting, lambda: augment.cut_normalized(rows, sent, normalize))
    yield f"resized crop + flip + normalize {size / seconds:12,.0f} images/s"


def measure_training(setting: Setting, dataset: Any) -> Iterator[str]:
    """Yield a line for each residency: the step beside that of a batch that never changes."""
    step = training_step(setting)
    streams = {place: endless(setting, dataset, place) for place in setting.places}
    fixed = next(streams["disk"])

    def synthetic() -> Iterator[dict[str, Any]]:
        while True:
            yield fixed

    seconds_a_step(setting, step, synthetic())  # compiles
    contenders = {"synthetic": synthetic(), **streams}
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(setting.rounds):
        names = [*contenders][number % len(contenders) :] + [*contenders][
            : number % len(contenders)
        ]
        for name in names:
            runs[name].append(seconds_a_step(setting, step, contenders[name]))
    for name, seconds in runs.items():
        ratio = statistics.median(
            one / other for one, other in zip(seconds, runs["synthetic"], strict=True)
        )
        rate = setting.batch_size / statistics.median(seconds)
        yield (
            f"ResNet-50 {name:9} {rate:10,.1f} images/s, {ratio:.4f} of the seconds of a fixed "
            "batch; wanted 1.015"
        )


def measure(setting: Setting, scratch: Path) -> Iterator[str]:
    """Check and measure all; yield lines as they come."""
    yield f"torch {torch.__version__}, Triton kernels: {kernels_for(setting.device) is not None}"
    if setting.device.type == "cuda":
        yield torch.cuda.get_device_name(setting.device)
    yield from check_all(scratch, setting.device)
    begin = time.perf_counter()
    dataset = open_dataset(write_images(scratch / "images", setting.count, setting.side))
    yield f"{setting.count} images written in {time.perf_counter() - begin:.0f} s"
    yield str(estimate_residency(dataset, device=setting.device))
    links = measure_links(setting)
    yield f"link {links['link'] / 1e9:.1f} GB/s, device copy {links['copy'] / 1e9:.0f} GB/s"
    yield from measure_passes(setting, dataset, links)
    yield from measure_loaders(setting, dataset, links)
    if setting.swept:
        yield from sweep(setting, dataset, links)
    yield from measure_training(setting, dataset)


def main() -> None:
    """Print all lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a few small images")
    parser.add_argument("--eager", action="store_true", help="do not compile the model")
    parser.add_argument("--sweep", action="store_true", help="try other constants as well")
    parser.add_argument("--scratch", type=Path, help="where the data is made")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    setting = Setting(device=device, compiled=not options.eager, swept=options.sweep)
    if options.tiny:
        setting = tiny(device, swept=options.sweep)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        for line in measure(setting, Path(folder)):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
