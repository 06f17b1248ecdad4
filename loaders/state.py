"""Where a loader stands, as a few plain values that a checkpoint keeps."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loaders.errors import SelectionError
from loaders.samples import SampleDataset
from loaders.selection import selection_facts
from loaders.token_blocks import Blocks
from loaders.token_packs import Packed
from loaders.token_rows import Chat, Padded
from loaders.token_views import TokenView
from loaders.views import Gatherable

STATE_VERSION: Final = 1

State = dict[str, int | bool | str | list[int]]
"""What a checkpoint keeps."""


def fingerprint_of(dataset: Gatherable) -> str:
    """Return a hash that names a dataset, its split, and what its indices mean.

    Raises:
        SelectionError: The dataset has no attribute `fingerprint`.
    """
    named = getattr(dataset, "fingerprint", None)
    if not isinstance(named, str):
        raise SelectionError(
            f"a {type(dataset).__name__} has no fingerprint, so a state could not be told from "
            "that of another dataset: give it an attribute `fingerprint`, a str"
        )
    facts: list[Any] = [named, dataset.split]
    if isinstance(dataset, TokenView) and isinstance(dataset.look, Blocks):
        # Of all options, these alone decide which tokens an index stands for.
        facts += [dataset.look.block_size, dataset.look.stride]
    if isinstance(dataset, SampleDataset):
        facts += selection_facts(dataset.indices, dataset.span)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def tokens_each(dataset: Gatherable) -> int | None:
    """Return how many tokens every sample has; None where that differs, or there are none."""
    if not isinstance(dataset, TokenView):
        found = getattr(dataset, "tokens_each", None)
        return found if isinstance(found, int) else None
    look = dataset.look
    if isinstance(look, Blocks):
        return look.block_size
    if isinstance(look, Packed):
        return look.store.width
    if isinstance(look, Chat):
        look = look.padded
    return look.width.length if isinstance(look, Padded) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a loader goes through: a state belongs to one course, and is refused by any other.

    Attributes:
        seed: Fixes the order, with the epoch.
        shuffle: Whether the order is random, or "block".
        window: Samples that are then shuffled together; None without blocks.
        count: Samples in an epoch.
        fingerprint: Of the dataset.
        tokens_each: Tokens in every sample; None where that differs.
        buckets: Samples of each group that batches are made of; None without groups.
    """

    seed: int
    shuffle: bool | str
    window: int | None
    count: int
    fingerprint: str
    tokens_each: int | None
    buckets: tuple[int, ...] | None = None

    def state(self, epoch: int, taken: Sequence[int]) -> State:
        """Return the state of a loader.

        Args:
            epoch: In which it is.
            taken: Samples of each group that it has handed out; of the only one, without groups.
        """
        samples = sum(taken)
        state: State = {"version": STATE_VERSION, "epoch": epoch, "samples": samples}
        if self.tokens_each is not None:
            state["tokens"] = samples * self.tokens_each
        if self.buckets is not None:
            state["buckets"] = [*taken]
        return {**state, **self._constant()}

    def _constant(self) -> dict[str, int | bool | str]:
        return {
            "seed": self.seed,
            "shuffle": self.shuffle,
            **({} if self.window is None else {"window": self.window}),
            "count": self.count,
            "fingerprint": self.fingerprint,
        }

    def place(self, state: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
        """Return the epoch of a state, and how many samples of each group were handed out.

        Raises:
            SelectionError: It is no state, or one of another course.
        """
        if not isinstance(state, Mapping):
            raise SelectionError(
                f"state is a {type(state).__name__}, expected what state_dict gave"
            )
        if state.get("version") != STATE_VERSION:
            raise SelectionError(
                f"state: version {state.get('version')!r}, expected {STATE_VERSION}; "
                "a newer one needs a newer prepshards"
            )
        constant = self._constant()
        grouped = set() if self.buckets is None else {"buckets"}
        expected = {"version", "epoch", "samples", *grouped, *constant} - {"window"}
        unknown, missing = set(state) - expected - {"tokens", "window"}, expected - set(state)
        if unknown or missing:
            wrong = [f"unknown {name!r}" for name in sorted(map(str, unknown))]
            wrong += [f"no {name!r}" for name in sorted(missing)]
            raise SelectionError(f"state: {', '.join(wrong)}; expected what state_dict gave")
        if state["fingerprint"] != self.fingerprint:
            raise SelectionError(
                "state: fingerprint is of another dataset, another split or selection of it, or "
                "other blocks: open what the state was saved with"
            )
        for name, value in constant.items():
            saved = state.get(name)
            if saved != value or type(saved) is not type(value):
                raise SelectionError(
                    f"state: {name} is {saved!r}, this Loader has {value!r}: give the same"
                )
        for name in ("epoch", "samples", *({"tokens"} & set(state))):
            if type(state[name]) is not int or state[name] < 0:
                raise SelectionError(
                    f"state: {name} is {state[name]!r}, expected an integer of at least 0"
                )
        if state["samples"] > self.count:
            raise SelectionError(
                f"state: samples is {state['samples']} of {self.count} in an epoch"
            )
        return state["epoch"], self._taken(state)

    def _taken(self, state: Mapping[str, Any]) -> tuple[int, ...]:
        if self.buckets is None:
            return (state["samples"],)
        taken = state["buckets"]
        whole = isinstance(taken, list | tuple) and len(taken) == len(self.buckets)
        whole = whole and all(
            type(own) is int and 0 <= own <= most
            for own, most in zip(taken, self.buckets, strict=True)
        )
        if not whole or sum(taken) != state["samples"]:
            raise SelectionError(
                f"state: buckets is {taken!r}, expected samples of each of {len(self.buckets)} "
                f"buckets, {state['samples']} in all"
            )
        return tuple(taken)
