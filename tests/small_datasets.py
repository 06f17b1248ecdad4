"""Small datasets of every modality and container, each made by one command out of one source."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.synthetic import encode_image, smooth_image, write_image_tree
from tests.token_commands import call, write_jsonl
from tests.tokenizers_made import LINES, make_bpe

Write = Callable[[Path], Path]
"""Writes a source and what else the command takes into a folder, and returns the source."""

Made = Callable[[str, str], tuple[Path, Path]]
"""Kind and container -> a source and the dataset made of it; to be copied, not changed."""


def _write_photos(folder: Path) -> Path:
    write_image_tree(folder / "photos", ["ant", "bee"], 5, splits=["train", "validation"])
    (folder / "photos/train/ant/broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    return folder / "photos"


def _write_texts(folder: Path) -> Path:
    make_bpe(folder / "tokenizer")
    for part in range(6):
        texts = [LINES[(part + n) % len(LINES)] * (1 + n % 3) for n in range(20)]
        write_jsonl(folder / f"texts/{part}.jsonl", texts, tag=[f"{part}.{n}" for n in range(20)])
    damaged = folder / "texts/2.jsonl"
    damaged.write_bytes(damaged.read_bytes() + b'{"text": \xff}\n')
    return folder / "texts"


def _write_table(folder: Path) -> Path:
    make_bpe(folder / "tokenizer")
    rows = ["id,colour,size,note,y"]
    rows += [
        f"{n},{['red', 'green', 'blue'][n % 3]},{n / 7},line {n % 5},{n % 2}" for n in range(300)
    ]
    (folder / "table").mkdir()
    (folder / "table/rows.csv").write_text("\n".join([*rows, "too,few"]) + "\n")
    return folder / "table"


def _write_paired_photos(folder: Path) -> Path:
    """Write photos of several shapes, with masks, boxes and a table."""
    boxes: dict[str, list[Any]] = {"images": [], "annotations": []}
    rows = []
    for number in range(20):
        name, width, height = f"{number:02d}", 30 + number, 50 - 2 * number // 3
        pixels = smooth_image(width, height, seed=number)
        for place, data in (("photos", pixels), ("masks", pixels[..., 0] // 64)):
            path = folder / place / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_image(data, ".png"))
        sizes = {"width": width, "height": height}
        boxes["images"].append({"id": number, "file_name": f"{name}.png", **sizes})
        for left in range(number % 4):
            box = {"bbox": [left, 2, 9, 9.5], "category_id": left % 2}
            boxes["annotations"].append({"image_id": number, **box})
        tags = ["wet", "far", "old"][: number % 4]
        row = {"kind": ["ant", "bee"][number % 2], "tags": tags, "y": number / 7, "who": number % 9}
        rows.append({"path": f"{name}.png", **row})
    boxes["categories"] = [{"id": number, "name": f"box {number}"} for number in range(2)]
    (folder / "boxes.json").write_text(json.dumps(boxes))
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "photos/broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    return folder / "photos"


def _write_lists(folder: Path) -> Path:
    """Write a table with short and long lists, decimals and objects."""
    rows = [
        {
            "colour": ["red", "green", "blue"][n % 3],
            "pair": [n / 4, n],
            "tags": [f"tag {n * place % 5}" for place in range(n % 4)],
            "long": [None if place % 9 == 5 else n * place for place in range(n * 37 % 200)],
            "at": {"x": n % 6, "in": {"y": None if n % 5 == 0 else f"place {n % 3}"}},
            "y": n % 2,
        }
        for n in range(60)
    ]
    lines = [
        f'{{"price": {n * 79 % 900 / 100:.2f}, {json.dumps(row)[1:]}' for n, row in enumerate(rows)
    ]
    (folder / "table").mkdir()
    (folder / "table/rows.jsonl").write_text("\n".join([*lines, "[]", ""]))
    return folder / "table"


KINDS: Mapping[str, tuple[Write, tuple[str, ...]]] = {
    "images": (_write_photos, ("images", "--sizes", "24", "32x16", "--shard-size", "20kB")),
    "ragged images": (
        _write_paired_photos,
        ("images", "--sizes", "24", "32", "--fit", "longest", "--masks", "{}/masks",
         "--boxes", "{}/boxes.json", "--metadata", "{}/rows.jsonl", "--key", "path",
         "--label", "kind", "--multi-label", "tags", "--target", "y", "--validation", "0.3",
         "--group-by", "who", "--shard-size", "20kB"),
    ),
    "encoded images": (
        _write_paired_photos,
        ("images", "--sizes", "24", "32", "--fit", "pad", "--masks", "{}/masks",
         "--shard-size", "20kB"),
    ),
    "tokens": (
        _write_texts,
        ("tokens", "--engine", "transformers", "--shard-size", "3kB", "--metadata-keys", "tag",
         "--validation", "0.3", "--tokenizer", "{}/tokenizer"),
    ),
    "shuffled tokens": (
        _write_texts,
        ("tokens", "--engine", "transformers", "--shard-size", "3kB", "--layout", "packed",
         "--length", "64", "--shuffle-documents", "3", "--dedup", "exact",
         "--tokenizer", "{}/tokenizer"),
    ),
    "table": (
        _write_table,
        ("table", "--target", "y", "--validation", "0.3", "--shuffle", "5", "--shard-size", "2kB",
         "--text", "note", "--tokenizer", "{}/tokenizer"),
    ),
    "list table": (
        _write_lists,
        ("table", "--target", "y", "--validation", "0.3", "--shuffle", "5", "--shard-size", "2kB",
         "--room", "20"),
    ),
}  # fmt: skip
"""Name -> what writes the source, and the command for it; {} is the folder of the source."""

ENCODED: Mapping[str, tuple[str, ...]] = {
    "tensor": ("--store", "jpeg", "--quality", "80"),
    "zarr": ("--compress", "zstd"),
}
"""Container -> how the encoded images are stored in it."""


def write_source(kind: str, folder: Path) -> Path:
    """Write the source of a kind of dataset into a folder."""
    return KINDS[kind][0](folder)


def asked_for(kind: str, container: str, source: Path) -> list[str]:
    """Return the command for a kind of dataset, without its source and output."""
    asked = [word.format(source.parent) for word in KINDS[kind][1]]
    stored = ENCODED[container] if kind.startswith("encoded") else ()
    return [*asked, *stored, "--format", container, "--max-skipped", "9"]


def prepare(kind: str, container: str, source: Path, out: Path, *more: str) -> None:
    """Prepare a dataset: the same bytes whenever it is called, unless `more` says otherwise.

    Raises:
        AssertionError: The command fails.
    """
    command, *words = asked_for(kind, container, source)
    result = call(command, source, out, *words, *more)
    assert result.exit_code == 0, result.stderr


def damage(path: Path, random_: random.Random) -> str:
    """Damage a file in one of the ways that a copy or a disk does; return which."""
    data = path.read_bytes()
    ways = ["missing", "longer", *(["flipped", "shorter", "zeros"] if data.strip(b"\0") else [])]
    way = random_.choice(ways)
    if way == "missing":
        path.unlink()
    elif way == "longer":
        path.write_bytes(data + bytes(random_.randrange(1, 600)))
    elif way == "shorter":
        path.write_bytes(data[: random_.randrange(len(data))])
    elif way == "zeros":
        path.write_bytes(bytes(len(data)))
    else:
        flip_bit(path, random_.randrange(8 * len(data)))
    return way


def flip_bit(path: Path, bit: int) -> None:
    """Turn one bit of a file over."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (before,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([before ^ 1 << bit % 8]))
