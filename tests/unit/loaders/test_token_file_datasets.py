"""Other trainers' files, served like our own datasets."""

import multiprocessing
import pickle  # noqa: TID251 - what worker processes do with a dataset
from pathlib import Path

import numpy as np
import pytest

from loaders import Loader, MissingShardError, TokenDataset, open_token_file
from preprocess.tokens.files import export_megatron, export_nanogpt

DOCUMENTS = [[5, 6, 7, 0], [0], [8, 9, 0], [10, 11, 12, 13, 0]]
PARTS = [
    (
        np.concatenate([np.array(document, np.uint16) for document in DOCUMENTS]),
        np.cumsum([0, *map(len, DOCUMENTS)]).astype(np.uint64),
    )
]


@pytest.fixture(params=["nanogpt", "megatron", "megatron by its .bin"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> TokenDataset:
    if request.param == "nanogpt":
        export_nanogpt(iter(PARTS), tmp_path / "train.bin")
        return open_token_file(tmp_path / "train.bin", eos_id=0)
    export_megatron(iter(PARTS), tmp_path / "data")
    return open_token_file(tmp_path / ("data.bin" if "bin" in request.param else "data"))


def test_documents_and_windows_are_served(data: TokenDataset) -> None:
    documents = data.documents()
    assert [documents[i]["tokens"].tolist() for i in range(len(documents))] == DOCUMENTS
    assert (data.layout, data.tokens, str(data.dtype)) == ("stream", 13, "uint16")
    batches = list(Loader(data.blocks(4), 1, shuffle=False))
    flat = [token for document in DOCUMENTS for token in document]
    assert [batch["x"][0].tolist() for batch in batches] == [flat[0:4], flat[4:8], flat[8:12]]
    assert [batch["y"][0].tolist() for batch in batches] == [flat[1:5], flat[5:9], flat[9:13]]


def test_it_pickles_as_the_call_that_opened_it(data: TokenDataset) -> None:
    again = pickle.loads(pickle.dumps(data.documents()))
    assert again[2]["tokens"].tolist() == DOCUMENTS[2]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (data.documents(),)) == len(DOCUMENTS)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingShardError, match=r"nowhere\.bin"):
        open_token_file(tmp_path / "nowhere.bin")
