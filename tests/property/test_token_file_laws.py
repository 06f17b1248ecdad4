"""Token files: what is exported is what is opened, and a damaged index never gives other ids."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.errors import FormatError
from loaders.token_files import TokenFile, open_megatron, open_nanogpt
from preprocess.tokens.files import Part, export_llmc, export_megatron, export_nanogpt

EOS = 0
quick = settings(max_examples=60, deadline=None)


def shards(top: int) -> st.SearchStrategy[list[list[list[int]]]]:
    """Shards of documents of ids, at least one id in all."""
    documents = st.lists(st.lists(st.integers(1, top), max_size=5), max_size=4)
    return st.lists(documents, min_size=1, max_size=4).filter(
        lambda found: any(ids for shard in found for ids in shard)
    )


def parts_of(found: list[list[list[int]]], dtype: str) -> list[Part]:
    return [
        (
            np.array([i for ids in shard for i in ids], dtype),
            np.cumsum([0, *map(len, shard)]).astype(np.uint64),
        )
        for shard in found
    ]


def documents_of(file: TokenFile) -> list[list[int]]:
    bounds = file.offsets.tolist()
    return [file.values[a:b].tolist() for a, b in pairwise(bounds)]


@quick
@given(st.sampled_from([("uint16", 2**16 - 1), ("uint32", 2**31 - 1)]), st.data())
def test_megatron_files_open_as_the_documents_that_were_exported(
    kind: tuple[str, int], data: st.DataObject
) -> None:
    dtype, top = kind
    found = data.draw(shards(top))
    with TemporaryDirectory() as folder:
        export_megatron(parts_of(found, dtype), Path(folder) / "a")
        opened = open_megatron(Path(folder) / "a")
        assert opened.values.dtype == np.dtype(dtype)
        assert documents_of(opened) == [ids for shard in found for ids in shard]


@quick
@given(shards(2**16 - 1), st.sampled_from(["uint16", "uint32"]))
def test_nanogpt_files_open_as_the_documents_that_were_exported(
    found: list[list[list[int]]], dtype: str
) -> None:
    ended = [[[*ids, EOS] for ids in shard] for shard in found]
    with TemporaryDirectory() as folder:
        export_nanogpt(parts_of(ended, dtype), Path(folder) / "train.bin")
        opened = open_nanogpt(Path(folder) / "train.bin", eos_id=EOS)
        assert documents_of(opened) == [ids for shard in ended for ids in shard]


@quick
@given(shards(2**16 - 1), st.integers(1, 12))
def test_llmc_shards_are_the_ids_that_were_exported_cut_at_the_stated_tokens(
    found: list[list[list[int]]], tokens: int
) -> None:
    ids = [i for shard in found for document in shard for i in document]
    with TemporaryDirectory() as folder:
        exported = export_llmc(
            parts_of(found, "uint16"), Path(folder) / "a", model="gpt-2", tokens_per_shard=tokens
        )
        read = [np.fromfile(path, "<u2", offset=1024).tolist() for path in exported.files]
    assert read == [ids[i : i + tokens] for i in range(0, len(ids), tokens)]


@quick
@given(shards(2**16 - 1), st.data())
def test_a_flipped_bit_of_an_index_is_refused_or_moves_a_boundary_alone(
    found: list[list[list[int]]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        prefix = Path(folder) / "a"
        exported = export_megatron(parts_of(found, "uint16"), prefix)
        index = Path(f"{prefix}.idx")
        damaged = bytearray(index.read_bytes())
        bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
        damaged[bit // 8] ^= 1 << bit % 8
        index.write_bytes(damaged)
        expected = open_ids(parts_of(found, "uint16"))
        try:
            opened = open_megatron(prefix)
        except FormatError:
            return
        # Nothing else in the index says which sequences are one document.
        assert bit // 8 >= 34 + 12 * exported.documents
        assert opened.values.tolist() == expected
        assert (np.diff(opened.offsets.astype(np.int64)) >= 0).all()
        assert (opened.offsets[0], opened.offsets[-1]) == (0, len(expected))


def open_ids(parts: list[Part]) -> list[int]:
    return [i for values, _ in parts for i in values.tolist()]


@quick
@given(shards(2**16 - 1), st.sampled_from([".bin", ".idx"]), st.data())
def test_a_cut_or_extended_file_is_refused(
    found: list[list[list[int]]], suffix: str, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        prefix = Path(folder) / "a"
        export_megatron(parts_of(found, "uint16"), prefix)
        path = Path(f"{prefix}{suffix}")
        whole = path.read_bytes()
        kept = data.draw(st.integers(0, len(whole) - 1))
        more = data.draw(st.binary(min_size=1, max_size=20))
        for changed in (whole[:kept], whole + more):
            path.write_bytes(changed)
            try:
                opened = open_megatron(prefix)
            except FormatError:
                continue
            raise AssertionError(f"opened {documents_of(opened)} from {len(changed)} bytes")
