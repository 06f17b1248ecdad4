"""What users write, checked by mypy in strict mode: public names and their types."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from loaders import (
    Augment,
    BucketBatches,
    Loader,
    Mix,
    Normalize,
    NormalizedModel,
    ResidencyEstimate,
    ShardDataset,
    ShardsError,
    Standardize,
    TableDataset,
    TableEncoder,
    TokenDataset,
    Weighted,
    estimate_residency,
    open_dataset,
    open_table,
    open_tokens,
)
from preprocess import (
    ImageOptions,
    Report,
    RunOptions,
    TextOptions,
    TokenOptions,
    check_dataset,
    images_to_shards,
    tokens_to_shards,
)


def prepare(photos: Path, out: Path) -> Report:
    options = ImageOptions(sizes=((512, 512), (1024, 1024)), grayscale=True, fit="pad")
    return images_to_shards(photos, out, options, RunOptions(container="zarr", workers=4))


def train(out: str, backbone: nn.Module) -> float:
    ds: ShardDataset = open_dataset(out, split="train", size=512)
    model = NormalizedModel(Normalize.for_dataset(ds), backbone, nn.functional.cross_entropy)
    loss = torch.zeros(())
    for batch in Loader(ds, batch_size=64, shuffle=True, seed=0, drop_last=True, device=None):
        loss = model(batch["image"], batch["label"])
    plain: DataLoader[dict[str, Any]] = DataLoader(ds, batch_size=64)
    classes: tuple[str, ...] = ds.classes
    mean: tuple[float, ...] | None = ds.mean
    print(len(plain), len(classes), mean)
    return float(loss)


def train_in_buckets(photos: Path, out: Path) -> int:
    options = ImageOptions(sizes=((1024, 1024),), fit="bucket", bucket_step=32, bucket_ratio=3)
    images_to_shards(photos, out, options)
    ds = open_dataset(out)
    counts: dict[tuple[int, int], int] = ds.buckets
    batches = BucketBatches(ds, 64, last="wrap", rank=0, world_size=2)
    loader: DataLoader[dict[str, Any]] = DataLoader(ds, batch_sampler=batches, num_workers=2)
    return len(loader) + sum(counts.values())


def train_on_some(out: str, scores: torch.Tensor) -> int:
    ds: ShardDataset = open_dataset(out, split="train", size=512)
    pets: ShardDataset = ds.subset("class", ["cat", "dog"]).select(range(1000))
    hard: ShardDataset = ds.select(scores > 0.5)
    cats: ShardDataset = ds.select(label="cat")
    rows: TableDataset = open_table("rides").subset("city", "Rome").select([4, 2, -1])
    balanced = Weighted(hard, "balanced", num_samples=10_000)
    by_score = Weighted(ds, weights=scores)
    mixed = Loader(Mix({pets: 1, balanced: 2}), batch_size=8)
    blocks = Loader(ds, batch_size=64, shuffle="block", window=8192)
    counted: list[int] = cats.read_labels().tolist()
    loaders = [mixed, blocks, Loader(by_score, 4), Loader(rows, 4, shuffle="global")]
    return sum(len(loader) for loader in loaders) + len(counted)


def train_resident(out: str, backbone: nn.Module) -> float:
    ds = open_dataset(out, size=256)
    estimate: ResidencyEstimate = estimate_residency(ds, device="cuda:0", world_size=8)
    wanted: int | None = estimate.row_nbytes
    augment = Augment(224, scale=(0.08, 1.0), flip=0.5)
    normalize = Normalize.for_dataset(ds, dtype=torch.bfloat16)
    loader = Loader(ds, 256, residency="auto", normalize=normalize, augment=augment)
    print(estimate, estimate.choice, wanted, loader.residency)
    loss = torch.zeros(())
    for batch in loader:
        loss = backbone(batch["image"]).sum()
    flipped: torch.Tensor = augment(
        torch.zeros((2, 3, 256, 256), dtype=torch.uint8), [5, 7], epoch=1
    )
    return float(loss) + float(flipped.float().sum())


def check(out: Path) -> bool:
    try:
        return not check_dataset(out, full=True).problems
    except ShardsError:
        return False


def tokenize(texts: Path, out: Path) -> Report:
    text = TextOptions(text_key="content", metadata_keys=("id",))
    options = TokenOptions(tokenizer="gpt2", layout="packed", length=4096, text=text)
    return tokens_to_shards(texts, out, options, RunOptions(workers=4))


def train_language_model(out: str, model: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    data: TokenDataset = open_tokens(out, split="train")
    mixed = Mix({data.blocks(1024): 0.7, open_tokens("code").blocks(1024): 0.3}, seed=1)
    loader = Loader(mixed, batch_size=8, rank=0, world_size=2, last="wrap")
    loader.load_state_dict(state)
    for batch in loader:
        model(batch["x"], batch["y"])
    eos: int | None = data.eos_id
    print(eos, len(data))
    return loader.state_dict()


def train_table(out: str, model: nn.Module) -> float:
    data: TableDataset = open_table(out, split="train", numeric="values")
    standardize = Standardize.for_table(data, missing="indicator", dtype=torch.bfloat16)
    embeddings = [nn.Embedding(*sizes) for sizes in data.embedding_sizes]
    names: tuple[str, ...] = data.numeric_names + data.categorical_names + data.classes
    loss = torch.zeros(())
    for batch in Loader(data, batch_size=4096, device="cuda"):
        loss = model(standardize(batch["numeric"]), batch["categorical"], batch["target"])
    mean: float | None = data.statistics["age"].mean
    print(names, mean, len(embeddings), standardize.out_features, loss)
    encoder = TableEncoder(out)
    served: dict[str, torch.Tensor] = encoder.batch({"age": [42], "city": ["Rome"]})
    unknown: dict[str, int] = encoder.unknown(encoder.encode({"age": [42], "city": ["Rome"]}))
    return float(model(served["numeric"])) + len(unknown)
