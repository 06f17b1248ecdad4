"""How tables are read, typed and split: the user's options."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, Final, Literal, get_args

from preprocess.shares import check_shares
from preprocess.spelling import Option, OptionError, check_names
from preprocess.texts.options import TextOptions

Task = Literal["auto", "classification", "regression"]

NULL_VALUES: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Fields of CSV that stand for no value, where they are not quoted."""

DELIMITERS: Final = (",", ";", "\t", "|")
"""What is looked for in the first record of a CSV file."""

TEXT_REMEDY: Final = (
    "a record holds no texts; store their tokens beside it with --text {0} --tokenizer T, or leave "
    "the column out with --ignore {0}"
)
"""What is said of a column that is text, after its name."""

_MAX_BUCKETS: Final = (1 << 31) - 2
"""Codes are at most int32, and 0 stands for a missing value."""

_MAX_ROOM: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What becomes of a table; all of it is recorded in the manifest.

    Attributes:
        target: The column to predict; None for a table of features alone.
        task: "classification" makes classes of the target, "regression" a number; "auto" decides
            by what is in it.
        categorical: Columns whose values become codes, whatever they look like.
        numeric: Columns that must be numbers: a value that is none is refused by line.
        ignore: Columns that are left out.
        text: Columns of texts, whose tokens are stored beside the records.
        tokenizer: Makes these tokens: folder, `tokenizer.json`, tiktoken file, or name in the local
            Hugging Face cache.
        hash_buckets: Columns whose values are hashed instead of counted, with the number of
            buckets of each.
        min_count: Values that occur less often in train share the code of unknown ones.
        float32: Columns whose floats may be rounded to float32; "*" for all of them.
        room: Whole numbers, dates and times have codes beyond their range, below and above, for
            so many percent of it each.
        delimiter: What stands between fields of CSV; None finds it in the first record.
        header: The first record of a CSV file names the columns; without, they are `column_1` on.
        decimal: What stands before the decimal places of numbers in text.
        thousands: What may stand between groups of three digits of numbers in text.
        null_values: Fields of CSV that stand for no value, where they are not quoted.
        encoding: Of text without a byte order mark; None for UTF-8.
        max_item_nbytes: Files of more bytes, or that decompress to more, are refused by name; None
            for any size.
        validation: Share of the rows that become the validation split, by a stable hash.
        test: Share that becomes the test split.
        split_seed: Changes which rows these are.
        stratify: Every class of the target has these shares.
        group_by: Rows with the same value in this column stay in one split.
        split_by_time: The last rows by this column are the test split, those before them
            validation.
        shuffle: Seed of the order of the rows within each split; None for that of the input.
        datetime_parts: Times have their year, month, day, weekday and hour beside them.
    """

    target: str | None = None
    task: Task = "auto"
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    tokenizer: str | None = None
    hash_buckets: tuple[tuple[str, int], ...] = ()
    min_count: int = 1
    float32: tuple[str, ...] = ()
    room: int = 0
    delimiter: str | None = None
    header: bool = True
    decimal: str = "."
    thousands: str | None = None
    null_values: tuple[str, ...] = NULL_VALUES
    encoding: str | None = None
    max_item_nbytes: int | None = None
    validation: float = 0.0
    test: float = 0.0
    split_seed: int = 0
    stratify: bool = False
    group_by: str | None = None
    split_by_time: str | None = None
    shuffle: int | None = None
    datetime_parts: bool = False

    def __post_init__(self) -> None:
        """Refuse values outside their range, and columns with two fates."""
        check_names(self, "categorical", "numeric", "ignore", "text", "float32", "null_values")
        if self.task not in get_args(Task):
            raise OptionError(Option("task", self.task), f": expected {get_args(Task)}")
        if self.min_count < 1:
            raise OptionError(Option("min_count", self.min_count), ": expected 1 or more")
        if not 0 <= self.room <= _MAX_ROOM:
            raise OptionError(
                Option("room", self.room), f": expected a percentage of 0..{_MAX_ROOM}"
            )
        if self.shuffle is not None and self.shuffle < 0:
            raise OptionError(Option("shuffle", self.shuffle), ": expected 0 or more")
        self._check_columns()
        self._check_text()
        self._check_marks()
        self._check_splits()
        # Refuses names of no encoding.
        TextOptions(encoding=self.encoding, max_item_nbytes=self.max_item_nbytes)

    def _check_columns(self) -> None:
        """Refuse columns that are named twice, or for two things that exclude each other."""
        for name in ("target", "group_by", "split_by_time"):
            if getattr(self, name) == "":
                raise OptionError(Option(name, ""), ": expected the name of a column")
        seen: dict[str, str] = {}
        for option, name in self._fates():
            if not name:
                raise OptionError(Option(option), ": expected names of columns, got an empty one")
            if name in seen:
                named = Option(seen[name])
                raise OptionError(Option(option), f": column {name!r} is named by ", named, " too")
            seen[name] = option
        if self.target is not None and seen.get(self.target) in {"ignore", "text", "hash_buckets"}:
            named = Option(seen[self.target])
            raise OptionError(Option("target", self.target), ": named by ", named, " too")
        if len(set(self.float32)) != len(self.float32) or "" in self.float32:
            raise OptionError(
                Option("float32", self.float32), ": expected names of columns, each once"
            )
        for name, buckets in self.hash_buckets:
            if not 1 <= buckets <= _MAX_BUCKETS:
                raise OptionError(
                    Option("hash_buckets"), f" of {name!r}: {buckets}, expected 1..{_MAX_BUCKETS}"
                )

    def _check_text(self) -> None:
        """Refuse texts without a tokenizer, and a tokenizer without texts."""
        if self.text and self.tokenizer is None:
            name = self.text[0]
            raise OptionError(
                Option("text"), f": column {name!r}: {TEXT_REMEDY.format(quote(name))}"
            )
        if self.tokenizer is not None and not self.text:
            raise OptionError(
                *(Option("tokenizer", self.tokenizer), ": makes tokens of the columns that "),
                *(Option("text"), " names, those of ", Option("like"), " as well: name them, or "),
                "leave the tokenizer out",
            )

    def _fates(self) -> Iterator[tuple[str, str]]:
        """Yield what each column is named for, where only one thing can be done to it."""
        for option in ("categorical", "numeric", "ignore", "text"):
            for name in getattr(self, option):
                yield option, name
        for name, _ in self.hash_buckets:
            yield "hash_buckets", name

    def _check_marks(self) -> None:
        """Refuse marks within fields and between them that could be taken for each other."""
        for name in ("delimiter", "decimal", "thousands"):
            mark = getattr(self, name)
            if mark is None:
                continue
            if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in '"\r\n\0-+':
                raise OptionError(
                    Option(name, mark), ": expected one ASCII mark, neither quote nor sign"
                )
        if self.decimal == self.thousands:
            raise OptionError(
                *(Option("decimal"), ", ", Option("thousands")),
                f" = {self.decimal!r}: expected two different marks",
            )
        if len(set(self.null_values)) != len(self.null_values):
            raise OptionError(Option("null_values", self.null_values), ": expected each once")

    def _check_splits(self) -> None:
        """Refuse shares outside their range, and ways to split that exclude each other."""
        splits = check_shares(self.validation, self.test, self.split_seed)
        ways = [
            name
            for name, chosen in {
                "stratify": self.stratify,
                "group_by": self.group_by is not None,
                "split_by_time": self.split_by_time is not None,
            }.items()
            if chosen
        ]
        if ways and not splits:
            raise OptionError(Option(ways[0]), ": only with shares for other splits")
        if len(ways) > 1:
            first, second = map(Option, ways[:2])
            raise OptionError(first, " and ", second, ": expected one of them")
        if self.split_seed and self.split_by_time is not None:
            raise OptionError(
                Option("split_seed", self.split_seed), ": nothing is drawn with ", Option(ways[0])
            )
        if self.stratify and self.target is None:
            raise OptionError(Option("stratify"), ": only with ", Option("target"))

    @property
    def unread(self) -> frozenset[str]:
        """Columns that nothing is taken from: ignored, and not what the splits are made by."""
        return frozenset(self.ignore) - {self.group_by, self.split_by_time}

    def recorded(self) -> dict[str, Any]:
        """Return what changes bytes, as JSON values."""
        values = asdict(self)
        if not self.room:
            del values["room"]  # as before there was any
        if self.max_item_nbytes is None:
            del values["max_item_nbytes"]  # likewise
        del values["tokenizer"]  # where it lay: what it makes of texts is recorded with them
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = [list(v) if isinstance(v, tuple) else v for v in value]
        return values
