"""A small GPT on text files: a tokenizer of its own, shards, and some steps of training.

    python pipelines/tokens_gpt.py TEXTS OUT

TEXTS is a glob, such as "texts/*.txt". Left out, it is the source of Python's standard library.
"""

import argparse
import glob
import sysconfig
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

from loaders import Loader, open_tokens
from preprocess import RunOptions, TokenOptions, tokens_to_shards

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LIBRARY = f"{sysconfig.get_paths()['stdlib']}/*.py"


class GPT(nn.Module):
    """A decoder-only transformer; forward returns the loss."""

    def __init__(self, vocabulary: int, length: int, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of predicting y from x."""
        places = torch.arange(x.shape[1], device=x.device)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        hidden = self.blocks(self.token(x) + self.place(places), mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())


def make_tokenizer(texts: str, folder: Path, vocabulary: int) -> None:
    """Train a byte-level BPE on the texts; any transformers tokenizer does as well."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<|end|>"])
    tokenizer.train(sorted(glob.glob(texts)), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def main() -> None:
    """Prepare, then train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="?", default=LIBRARY)
    parser.add_argument("out", nargs="?", default="tokens-gpt", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()

    make_tokenizer(args.texts, args.out / "tokenizer", vocabulary=2048)
    options = TokenOptions(tokenizer=str(args.out / "tokenizer"), eos="<|end|>", validation=0.05)
    print(tokens_to_shards(args.texts, args.out / "shards", options, RunOptions()).to_text())

    data = open_tokens(args.out / "shards")
    model = GPT(2048, args.length).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = iter(Loader(data.blocks(args.length), batch_size=16, device=DEVICE))
    for step, batch in zip(range(args.steps), batches, strict=False):
        loss = model(batch["x"], batch["y"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
