"""A small network on a table that Python ships: of which category is a character of Unicode?"""

import argparse
import csv
import sys
import unicodedata
from pathlib import Path

import torch
from torch import Tensor, nn

from loaders import Loader, Standardize, TableDataset, open_table
from preprocess import RunOptions, TableOptions, table_to_shards

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
COUNTED = ["code_point", "name_length", "words", "first_word", "numeric"]
ASKED = ["combining", "mirrored", "bidirectional", "east_asian_width", "category"]
UNNAMED = ("CJK UNIFIED", "HANGUL SYLLABLE", "TANGUT IDEO")  # their names are numbers or sounds


def write_table(path: Path) -> None:
    """Write properties of characters as CSV; most have no numeric value: it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COUNTED + ASKED)
        for char in map(chr, range(sys.maxunicode + 1)):
            name = unicodedata.name(char, UNNAMED[0])
            if not name.startswith(UNNAMED):
                first, *rest = name.split()
                row = [ord(char), len(name), 1 + len(rest), first, unicodedata.numeric(char, "")]
                rows.writerow(row + [getattr(unicodedata, asked)(char) for asked in ASKED])


class Network(nn.Module):
    """An embedding a categorical column, beside the standardized numbers."""

    def __init__(self, data: TableDataset) -> None:
        super().__init__()
        self.numbers = Standardize.for_table(data, missing="indicator")
        self.embeddings = nn.ModuleList(nn.Embedding(*size) for size in data.embedding_sizes)
        inside = self.numbers.out_features + sum(width for _, width in data.embedding_sizes)
        self.hidden, self.last = nn.Linear(inside, 128), nn.Linear(128, len(data.classes))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Return a score for each class, [B, classes]."""
        columns = zip(self.embeddings, batch["categorical"].unbind(1), strict=True)
        parts = [self.numbers(batch["numeric"]), *(embed(codes) for embed, codes in columns)]
        return self.last(self.hidden(torch.cat(parts, dim=1)).relu())


def main() -> None:
    """Prepare, train, and compare with always giving the largest class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default="tables-mlp", type=Path)
    out: Path = parser.parse_args().out
    write_table(source := out / "characters.csv")
    options = TableOptions(target="category", validation=0.2, min_count=10)
    report = table_to_shards(source, out / "shards", options, RunOptions(overwrite=True))
    print(report.to_text())
    data, held_out = (open_table(out / "shards", split) for split in ("train", "validation"))
    model = Network(data).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(4):
        for batch in Loader(data, batch_size=512, device=DEVICE):
            loss = nn.functional.cross_entropy(model(batch), batch["target"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    batches = Loader(held_out, 4096, shuffle=False, drop_last=False, device=DEVICE)
    with torch.no_grad():
        shown = [(model(batch).argmax(1), batch["target"]) for batch in batches]
    found, right = map(torch.cat, zip(*shown, strict=True))
    score, largest = (found == right).sum(), right.bincount().max()
    print(f"accuracy {score / len(right):.3f}, of the largest class {largest / len(right):.3f}")


if __name__ == "__main__":
    main()
