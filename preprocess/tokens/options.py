"""What `prep tokens` makes of each text: the user's options."""

from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Final, Literal, get_args

from preprocess.shares import SPLIT_STEPS, check_shares
from preprocess.spelling import Option, OptionError
from preprocess.texts.options import TextOptions
from preprocess.tokens.tokenizer_tiktoken import TiktokenFile

Layout = Literal["stream", "fixed", "packed", "chat"]
Specials = Literal["text", "parse", "error"]
Packer = Literal["best_fit", "first_fit"]
Dedup = Literal["exact", "minhash"]

DEDUP_THRESHOLD: Final = 0.8
"""Share of equal values of two signatures from which on documents count as duplicates."""

_MAX_LENGTH: Final = 1 << 24
"""Tokens of a row: beyond any model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """What becomes of each text; all of it is recorded in the manifest.

    Attributes:
        tokenizer: Folder, `tokenizer.json`, tiktoken file, or name in the local Hugging Face cache;
            a `TiktokenFile` says what a tiktoken file does not.
        layout: "stream" (documents of any length), "fixed" (rows of one length for encoders),
            "packed" (whole documents that share rows of one length), "chat" (messages with a loss
            mask).
        length: Tokens of a row; fixed and packed only.
        stride: fixed only: long documents become several rows, each of which repeats so many
            tokens of the one before; None keeps the first.
        packing: packed only: which rows documents share.
        specials: What text that looks like a special token becomes: "text" ordinary tokens,
            "parse" the special token, "error" refuses the document.
        eos: Token after each document of stream and packed; "" for none, None for the tokenizer's.
        bos: Token before each document of stream and packed; "" for none, None for the tokenizer's.
        pad: Token that fills rows; None for the tokenizer's.
        chat_day: chat only: what a template that writes the date of the day writes instead, as
            "YYYY-MM-DD".
        validation: Share of the documents that become the validation split, by a stable hash.
        test: Share that becomes the test split.
        split_seed: Changes which documents these are.
        shuffle_documents: Seed of the order of the documents within each split; None for that of
            the input.
        dedup: Leave out documents whose text an earlier one has, of this or an earlier split:
            "exact" the same bytes, "minhash" nearly.
        dedup_threshold: minhash only: how much alike; None for `DEDUP_THRESHOLD`.
        engine: "auto", or one of `preprocess.tokens.engines.ENGINES`.
        text: How texts are read.
    """

    tokenizer: str | TiktokenFile
    layout: Layout = "stream"
    length: int | None = None
    stride: int | None = None
    packing: Packer = "best_fit"
    specials: Specials = "text"
    eos: str | None = None
    bos: str | None = ""
    pad: str | None = None
    chat_day: str | None = None
    validation: float = 0.0
    test: float = 0.0
    split_seed: int = 0
    shuffle_documents: int | None = None
    dedup: Dedup | None = None
    dedup_threshold: float | None = None
    engine: str = "auto"
    text: TextOptions = field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        """Refuse values outside their range, and options of other layouts."""
        choices = {"layout": Layout, "specials": Specials, "packing": Packer}
        for name, allowed in choices.items():
            if getattr(self, name) not in get_args(allowed):
                given = Option(name, getattr(self, name))
                raise OptionError(given, f": expected {get_args(allowed)}")
        self._check_layout()
        self._check_order()
        check_shares(self.validation, self.test, self.split_seed)
        if self.chat_day is not None:
            try:
                date.fromisoformat(self.chat_day)
            except ValueError as error:
                given = Option("chat_day", self.chat_day)
                raise OptionError(given, ": expected a day such as 2026-01-31") from error

    def _check_layout(self) -> None:
        """Refuse options of other layouts."""
        rows = self.layout in {"fixed", "packed"}
        if rows and self.length is None:
            raise OptionError(Option("length"), f": layout {self.layout} needs the tokens of a row")
        if self.length is not None and not 1 <= self.length <= _MAX_LENGTH:
            raise OptionError(Option("length", self.length), f": expected 1..{_MAX_LENGTH}")
        only = {
            "length": (self.length, ("fixed", "packed")),
            "stride": (self.stride, ("fixed",)),
            "pair_key": (self.text.pair_key, ("fixed",)),
            "chat_day": (self.chat_day, ("chat",)),
            "eos": (self.eos, ("stream", "packed")),
            "bos": (self.bos != "" or None, ("stream", "packed")),
            "pad": (self.pad, ("fixed", "packed")),
            "packing": (None if self.packing == "best_fit" else self.packing, ("packed",)),
        }
        for name, (value, layouts) in only.items():
            if value is not None and self.layout not in layouts:
                given = Option(name, self.bos if name == "bos" else value)
                raise OptionError(given, f": only with layout {' or '.join(layouts)}")
        if self.text.json_values != (self.layout == "chat"):
            raise OptionError(Option("text.json_values"), ": expected exactly with layout chat")
        if self.layout == "chat" and self.specials != "text":
            raise OptionError(
                *(Option("specials", self.specials), ": with layout chat the template writes the "),
                "special tokens, and what looks like one in a message stays text",
            )

    def _check_order(self) -> None:
        """Refuse seeds and thresholds outside their range."""
        if self.shuffle_documents is not None and self.shuffle_documents < 0:
            raise OptionError(
                Option("shuffle_documents", self.shuffle_documents), ": expected 0 or more"
            )
        if self.dedup is not None and self.dedup not in get_args(Dedup):
            raise OptionError(Option("dedup", self.dedup), f": expected {get_args(Dedup)}")
        if self.dedup_threshold is not None:
            threshold = Option("dedup_threshold", self.dedup_threshold)
            if self.dedup != "minhash":
                raise OptionError(threshold, ": only with ", Option("dedup", "minhash"))
            if not 0 < self.dedup_threshold <= 1:
                raise OptionError(threshold, ": expected above 0, to 1")

    @property
    def reorders(self) -> bool:
        """Whether documents are left out or put in order after all of them are known."""
        return self.shuffle_documents is not None or self.dedup is not None

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Return which hashes below SPLIT_STEPS are of which split; train alone by default."""
        test = SPLIT_STEPS - round(self.test * SPLIT_STEPS)
        validation = test - round(self.validation * SPLIT_STEPS)
        whole = SPLIT_STEPS
        ends = {"train": (0, validation), "validation": (validation, test), "test": (test, whole)}
        return {name: (first, end) for name, (first, end) in ends.items() if first < end}

    def recorded(self) -> dict[str, Any]:
        """Return what changes bytes, as JSON values: neither engine nor where the tokenizer lay."""
        values = {**asdict(self), "text": self.text.recorded()}
        del values["engine"], values["tokenizer"]
        return values
