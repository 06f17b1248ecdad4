"""Whole batches, gathered in threads of this process; no worker processes, no collating."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from loaders.augment import Augment
from loaders.device import check_device
from loaders.errors import SelectionError
from loaders.feed import VALID, Feed, Ready, open_feed
from loaders.finish import Finish
from loaders.groups import groups_of
from loaders.normalize import Normalize
from loaders.order import Shuffle, chosen_shuffle, chosen_window
from loaders.residency import Residency, chosen_place
from loaders.sampling import Last, Share, chosen_last, chosen_ranks
from loaders.schedule import Schedule, check_full
from loaders.state import Course, State, fingerprint_of, tokens_each
from loaders.views import Gatherable
from loaders.wanted import Plan


@dataclass(slots=True)
class _Place:
    """Where a pass stands.

    Attributes:
        epoch: Its number.
        taken: How many of the epoch's were handed out by all ranks together, of each group of
            samples that batches are made of.
        begun: Whether the pass has begun; the next one is then another epoch.
    """

    epoch: int
    taken: tuple[int, ...]
    begun: bool = False


class Loader:
    """Iterates over a dataset in batches, one epoch per `for` loop.

    Each pass is the next epoch, with an order of its own that depends on seed and epoch alone.
    Batches are dicts as the dataset makes them; with a CUDA device they arrive there, copied
    from page-locked memory while the batch before is in use.

    With several ranks each takes its part of the same global batches, and all of them get the same
    number of batches. `state_dict` says in a few integers where the loader stands, and
    `load_state_dict` continues with the very next sample, for any batch size and number of ranks.

    Pictures in buckets come in batches of one bucket, at each step the same on every rank: what is
    said below of a last batch is then said of the last of each bucket.

    Copies, pickled ones too, open their own files, keep their own samples where these are resident,
    and go on after the last sample that was handed out.

    Args:
        dataset: What `open_dataset` or `open_table` returns, a view of `open_tokens` such as
            `.blocks(1024)`, a selection of their samples, or a `Mix` or `Weighted` of them.
        batch_size: Samples in a batch of one rank.
        shuffle: True or "global" visits all samples in random order, False as stored. "block", for
            data larger than memory on slow disks, visits blocks of neighbours in random order and
            shuffles the samples of 64 blocks at a time.
        seed: Fixes the order, with the epoch.
        drop_last: Leave out a last batch that is not full, as is the default. False gives it
            smaller, which several ranks cannot have: they say `last`.
        device: Where batches go; None leaves them in host memory.
        rank: Number of this process among all that train; from torch.distributed by default.
        world_size: How many these are; from torch.distributed by default, 1 without it.
        last: In place of `drop_last`, what becomes of a last global batch that is not full: "drop"
            leaves it out; "wrap" fills it with the first samples of the same epoch; "pad" does so
            too, and every batch has a "valid", bool [B], that is False for those fillers: an
            evaluation that leaves them out counts every sample once.
        window: Samples that "block" shuffles together: 64 blocks. By default 1 GiB of them, at most
            1,048,576; the page cache holds twice as much.
        residency: Where samples lie while batches are made; batches are the same. "disk": mapped
            files. "ram": these, of a selection where its samples lie, read before the first batch
            and kept in RAM, once for all ranks of a machine, as far as there is room. "pinned":
            page-locked RAM of this process, which the device reads by itself: no processor's work.
            "device": memory of the device; on the CPU one array in RAM. "auto": the fastest of them
            that leaves enough room; a line on stderr says which. `estimate_residency` tells it
            beforehand.
        normalize: Batches have "image" normalized, made where they arrive and beside the model's
            work: `Normalize.for_dataset(dataset, dtype=torch.bfloat16)`.
        augment: Batches have "image" cut and flipped at random by seed, epoch and place in it,
            before it is normalized.

    Raises:
        SelectionError: An option is out of range or contradicts another, no batch is full where
            only full ones are wanted, or a residency does not fit.
        NormalizeError: The images do not fit the statistics, or are no stored integers.
        DeviceError: There is no such device.
    """

    def __init__(  # noqa: PLR0913 - each says one thing, and all but two have their default
        self,
        dataset: Gatherable,
        batch_size: int,
        *,
        shuffle: Shuffle = True,
        seed: int = 0,
        drop_last: bool | None = None,
        device: torch.device | str | int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        last: Last | None = None,
        window: int | None = None,
        residency: Residency = "disk",
        normalize: Normalize | None = None,
        augment: Augment | None = None,
    ) -> None:
        if not isinstance(dataset, Gatherable):
            raise SelectionError(
                f"dataset is a {type(dataset).__name__}, expected what open_dataset or open_table "
                "returns, or a view of open_tokens such as .blocks(1024); other torch datasets go "
                "into a torch.utils.data.DataLoader"
            )
        if type(seed) is not int or seed < 0:
            raise SelectionError(f"seed={seed!r}: expected an integer of at least 0")
        rank, world_size = chosen_ranks(rank, world_size)
        self._share = Share(
            count=len(dataset),
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            last=chosen_last(drop_last=drop_last, last=last),
        )
        groups = groups_of(dataset)
        self.shuffle = chosen_shuffle(shuffle)
        self._schedule = Schedule.of(self._share, groups, seed=seed, shuffle=bool(shuffle))
        check_full(dataset, self._schedule, groups)
        if self._share.last == "pad" and VALID in {part.name for part in dataset.views}:
            raise SelectionError(
                f'{dataset.path}: last="pad" adds {VALID!r} to batches, which have one already: '
                'use last="drop"'
            )
        if groups is not None and self.shuffle == "block":
            raise SelectionError(
                f'{dataset.path}: shuffle="block": each bucket would want a window of its own: '
                "use shuffle=True"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.window = chosen_window(dataset, blocks=self.shuffle == "block", window=window)
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.last = self._share.last
        self.device = torch.device("cpu") if device is None else check_device(device)
        self.residency = chosen_place(dataset, residency, self.device, rank, world_size)
        self._plan = Plan(
            dataset=dataset,
            schedule=self._schedule,
            groups=groups,
            shuffle=self.shuffle,
            window=self.window,
            seed=seed,
            announced=self.residency == "disk",
        )
        self._finish = Finish.on(dataset, self.device, augment, normalize, seed)
        self._place = _Place(0, self._schedule.nothing)

    def __len__(self) -> int:
        """Return the batches in a whole epoch, on each rank alike."""
        return len(self._schedule)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; without this each pass is the next one.

        Where `load_state_dict` has led into that epoch, the next pass still continues there.
        """
        if type(epoch) is not int or epoch < 0:
            raise SelectionError(f"epoch={epoch!r}: expected an integer of at least 0")
        if self._place.begun or epoch != self._place.epoch:
            self._place = _Place(epoch, self._schedule.nothing)

    def state_dict(self) -> State:
        """Return where the loader stands, the same on every rank.

        Returns:
            "epoch" and "samples", how many of the epoch all ranks together were handed out: batches
            that the loop has got, not those that are ready ahead of it. "tokens" likewise where
            every sample has the same number of them, "buckets" the samples of each bucket where
            there are buckets. The rest names what they belong to.

        Raises:
            SelectionError: The dataset has no fingerprint.
        """
        return self._course.state(self._place.epoch, self._place.taken)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass continue with the sample after the last that was handed out.

        That pass has the rest of the epoch's batches, possibly none. Batch size, number of ranks
        and `last` may be others than when the state was saved: the next global batch starts where
        the last one ended.

        Raises:
            SelectionError: It is no state, or one of another dataset, seed or kind of order.
        """
        self._place = _Place(*self._course.place(state))

    def __getstate__(self) -> dict[str, Any]:
        place = _Place(self._place.epoch, self._place.taken)
        state = {**self.__dict__, "_place": place}
        state.pop("_feed", None)  # its threads, buffers and resident samples are made anew
        return state

    @cached_property
    def _feed(self) -> Feed:
        """Where batches come from; opened by the first pass, which reads what is to be resident."""
        return open_feed(
            self.dataset, self._share, self.device, residency=self.residency, finish=self._finish
        )

    @cached_property
    def _course(self) -> Course:
        return Course(
            seed=self.seed,
            shuffle=self.shuffle,
            window=self.window,
            count=len(self.dataset),
            fingerprint=fingerprint_of(self.dataset),
            tokens_each=tokens_each(self.dataset),
            buckets=None if self._plan.groups is None else self._plan.groups.counts,
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Start the next epoch, or go on with the one that `load_state_dict` has led into.

        It begins with the first batch that is asked for: training frameworks call `iter` to see
        whether it works, and once more before they choose an epoch or load a state.
        """
        return self._run()

    def _run(self) -> Generator[dict[str, Any], None, None]:
        feed = self._feed  # first: no epoch has begun where this fails
        place = self._place
        if place.begun:
            place = _Place(place.epoch + 1, self._schedule.nothing)
        place.begun = True
        self._place = place
        wanted = self._plan.batches(place.epoch, place.taken)
        batches = feed.run(wanted, place.epoch)
        try:
            # Not kept in a name, which would keep a batch's memory from being used again.
            yield from map(partial(_handed, place), batches)
        finally:
            batches.close()
            with suppress(ValueError):  # the loop is cleared up by a thread that is asking it
                wanted.close()
        place.epoch, place.taken, place.begun = place.epoch + 1, self._schedule.nothing, False


def _handed(place: _Place, batch: Ready) -> dict[str, Any]:
    """Note that a batch leaves for the loop."""
    entries, place.taken = batch
    return entries
