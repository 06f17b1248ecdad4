"""Triton kernels: rows by index out of memory that the GPU can read, its own or page-locked RAM.

The only module that imports Triton; it is imported in functions, where Triton is installed.
"""

import triton
import triton.language as tl


@triton.jit
def take_rows(
    source,
    index,
    out,
    count,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy row index[i] of source, [N, WORDS], to row i of out, [count, WORDS].

    Tiles of ROWS x COLUMNS words go round a fixed number of programs: few of them are enough for
    a link, and leave the processors of the GPU to the model.
    """
    across: tl.constexpr = (WORDS + COLUMNS - 1) // COLUMNS
    tiles = tl.cdiv(count, ROWS) * across
    tile = tl.program_id(0)
    while tile < tiles:
        rows = (tile // across) * ROWS + tl.arange(0, ROWS)
        columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
        places = tl.load(index + rows, mask=rows < count, other=0)
        inside = (rows < count)[:, None] & (columns < WORDS)[None, :]
        values = tl.load(source + (places * WORDS)[:, None] + columns[None, :], mask=inside)
        target = out + (rows.to(tl.int64) * WORDS)[:, None] + columns[None, :]
        tl.store(target, values, mask=inside)
        tile += tl.num_programs(0)


@triton.jit
def statistics_of(channels, scale, bias, step, CHANNELS: tl.constexpr):
    """Return scale * step and bias of each channel: chosen among scalars, not loaded for each."""
    factor = tl.where(channels == 0, tl.load(scale) * step, 0.0)
    offset = tl.where(channels == 0, tl.load(bias), 0.0)
    for channel in tl.static_range(1, CHANNELS):
        factor = tl.where(channels == channel, tl.load(scale + channel) * step, factor)
        offset = tl.where(channels == channel, tl.load(bias + channel), offset)
    return factor, offset


@triton.jit
def normalize_rows(
    source,
    index,
    out,
    scale,
    bias,
    step,
    count,
    WORDS: tl.constexpr,
    CHANNELS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LANES: tl.constexpr,
    INDEXED: tl.constexpr,
):
    """Write value * (scale * step) + bias of each value of a row, channels innermost.

    Of the rows index[i] where INDEXED, else of all. The sum is rounded once, as torch's addcmul
    does it: the results are the same to the bit.
    """
    across: tl.constexpr = (WORDS + COLUMNS - 1) // COLUMNS
    lanes = tl.arange(0, LANES)[None, :]
    phases = lanes % CHANNELS
    tile = tl.program_id(0)
    while tile < count * across:
        row = (tile // across).to(tl.int64)
        starts = (tile % across) * COLUMNS + tl.arange(0, COLUMNS // LANES)[:, None] * LANES
        columns = starts + lanes
        place = tl.load(index + row) if INDEXED else row
        inside = columns < WORDS
        values = tl.load(source + place * WORDS + columns, mask=inside, other=0).to(tl.float32)
        # A thread has the LANES values from one start. Which channel is first there is worked out
        # once for all of them; the rest is known when this is compiled.
        first = starts % CHANNELS
        factor = tl.zeros([COLUMNS // LANES, LANES], tl.float32)
        offset = tl.zeros([COLUMNS // LANES, LANES], tl.float32)
        for phase in tl.static_range(CHANNELS):
            channels = (first + phase) % CHANNELS
            own_factor, own_offset = statistics_of(channels, scale, bias, step, CHANNELS)
            factor = tl.where(phases == phase, own_factor, factor)
            offset = tl.where(phases == phase, own_offset, offset)
        shown = tl.fma(values, factor, offset)
        tl.store(out + row * WORDS + columns, shown.to(out.dtype.element_ty), mask=inside)
        tile += tl.num_programs(0)


@triton.jit
def between(places, length, SIZE: tl.constexpr, FRACTION: tl.constexpr):
    """Return the pixels of a box's side around each of SIZE places, and how far between it is."""
    last = length.to(tl.int64) - 1
    exact = (((2 * places + 1) * (last + 1)) << FRACTION) // (2 * SIZE) - (1 << (FRACTION - 1))
    exact = tl.minimum(tl.maximum(exact, 0), last << FRACTION)
    before = exact >> FRACTION
    return before, tl.minimum(before + 1, last), exact & ((1 << FRACTION) - 1)


@triton.jit
def cut_rows(
    source,
    boxes,
    out,
    scale,
    bias,
    step,
    count,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
    SHOWN_HIGH: tl.constexpr,
    SHOWN_WIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SCALED: tl.constexpr,
    FRACTION: tl.constexpr,
    NORMALIZED: tl.constexpr,
):
    """Show a box of each image, [count, HIGH, WIDE, CHANNELS], as `augment` defines it.

    Scaled boxes are worked out in int64, where uint16 and large images need it; NORMALIZED writes
    value * (scale * step) + bias, else values as stored.
    """
    words: tl.constexpr = SHOWN_HIGH * SHOWN_WIDE * CHANNELS
    across: tl.constexpr = (words + COLUMNS - 1) // COLUMNS
    tile = tl.program_id(0)
    while tile < count * across:
        row = (tile // across).to(tl.int64)
        columns = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
        inside = columns < words
        channels = columns % CHANNELS
        x = (columns // CHANNELS) % SHOWN_WIDE
        y = columns // (CHANNELS * SHOWN_WIDE)
        box = boxes + row * 5
        top, left = tl.load(box), tl.load(box + 1)
        x = tl.where(tl.load(box + 4) != 0, SHOWN_WIDE - 1 - x, x)
        image = source + row * (HIGH * WIDE * CHANNELS) + channels
        if SCALED:
            y0, y1, down = between(y, tl.load(box + 2), SHOWN_HIGH, FRACTION)
            x0, x1, right = between(x, tl.load(box + 3), SHOWN_WIDE, FRACTION)
            upper, lower = (top + y0) * WIDE + left, (top + y1) * WIDE + left
            a = tl.load(image + (upper + x0) * CHANNELS, mask=inside, other=0).to(tl.int64)
            b = tl.load(image + (upper + x1) * CHANNELS, mask=inside, other=0).to(tl.int64)
            c = tl.load(image + (lower + x0) * CHANNELS, mask=inside, other=0).to(tl.int64)
            d = tl.load(image + (lower + x1) * CHANNELS, mask=inside, other=0).to(tl.int64)
            above, below = (a << FRACTION) + (b - a) * right, (c << FRACTION) + (d - c) * right
            mixed = (above << FRACTION) + (below - above) * down
            values = (mixed + (1 << (2 * FRACTION - 1))) >> (2 * FRACTION)
        else:
            y += top
            x += left
            within = inside & (y >= 0) & (y < HIGH) & (x >= 0) & (x < WIDE)
            values = tl.load(image + (y * WIDE + x) * CHANNELS, mask=within, other=0)
        target = out + row * words + columns
        if NORMALIZED:
            factor, offset = statistics_of(channels, scale, bias, step, CHANNELS)
            shown = tl.fma(values.to(tl.float32), factor, offset)
            tl.store(target, shown.to(out.dtype.element_ty), mask=inside)
        else:
            tl.store(target, values.to(out.dtype.element_ty), mask=inside)
        tile += tl.num_programs(0)
