"""Small tokenizers of the three common kinds, made from a few lines; the same on every run.

The trainers for WordPiece and Unigram give another vocabulary on each run: it is counted here.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LINES = [
    "The quick brown fox jumps over the lazy dog, and the dog isn't amused at all.",
    "Numbers 0 1 2 3 4 5 6 7 8 9 10 100 1000; sums 3.14 + 2.71 = 5.85 (about).",
    "def encode(text):\n    return [vocabulary[piece] for piece in text.split()]\n",
    "Größe, café, naïve, señor, été; Привет, мир; 你好，世界; こんにちは; مرحبا.",
    "A shard holds samples; a sample holds fields; a field has a type and a shape.",
    "they're we've I'll you'd he's it's don't THE QUICK BROWN FOX",
    *(
        f"line {number}: reading and writing, reader and writer {number * 7}"
        for number in range(40)
    ),
]


def make_bpe(folder: Path) -> Path:
    """Byte-level BPE as GPT-2 has it: `<|endoftext|>` is EOS and BOS, `<|pad|>` pads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    names = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "pad_token": "<|pad|>"}
    return _write(tokenizer, folder, names)


def make_wordpiece(folder: Path) -> Path:
    """WordPiece as BERT has it, with the padding and truncation that such files often carry."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    normalizer = normalizers.BertNormalizer(lowercase=True)
    splitter = pre_tokenizers.BertPreTokenizer()
    words = [
        word
        for line in LINES
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line))
    ]
    letters = sorted({letter for word in words for letter in word})
    ends = [f"##{piece}" for piece in _pieces(word[1:] for word in words)]
    vocabulary = dict.fromkeys(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *_pieces(words), *ends]
    )
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", first), ("[SEP]", last)],
    )
    tokenizer.enable_truncation(max_length=16)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"), pad_token="[PAD]", length=16)
    names = {"eos_token": "[SEP]", "bos_token": "[CLS]", "pad_token": "[PAD]"}
    return _write(tokenizer, folder, {**names, "unk_token": "[UNK]"})


def make_unigram(folder: Path) -> Path:
    """Unigram as T5 has it: `</s>` after every text, and special tokens among the pieces."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    splitter = pre_tokenizers.Metaspace()
    words = [word for line in LINES for word, _ in splitter.pre_tokenize_str(line)]
    counts = _pieces(words)
    total = sum(counts.values())
    scored = [(piece, math.log(count / total)) for piece, count in counts.items()]
    specials = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = Tokenizer(models.Unigram([*specials, *scored], unk_id=2, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", end)]
    )
    names = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return _write(tokenizer, folder, names)


def _pieces(words: Iterable[str], longest: int = 4, most: int = 150) -> dict[str, int]:
    """Count the parts of words: all letters, and the commonest longer parts."""
    parts = Counter(
        word[i : i + length]
        for word in words
        for length in range(1, longest + 1)
        for i in range(len(word) - length + 1)
    )
    common = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    letters = [part for part in common if len(part[0]) == 1]
    return dict([*letters, *[part for part in common if len(part[0]) > 1][:most]])


def _write(tokenizer: Any, folder: Path, names: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
