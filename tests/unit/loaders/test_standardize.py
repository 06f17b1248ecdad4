from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from loaders import NormalizeError, SelectionError, Standardize, open_table
from loaders.format.table_schema import ColumnSpec
from tests.table_stores import people_specs, statistics, write_people, write_table

NAN = float("nan")


def by_definition(
    values: torch.Tensor, mean: Sequence[float], std: Sequence[float]
) -> torch.Tensor:
    wide = values.double()
    return (wide - torch.tensor(mean).double()) / torch.tensor(std).double()


@pytest.mark.parametrize("missing", ["mean", "zero", "indicator"])
def test_values_are_standardized_by_the_definition(missing: Any) -> None:
    mean, std = [3.5, -1e4, 0.0], [2.0, 300.0, 1e-3]
    values = torch.randn(64, 3) * torch.tensor(std) + torch.tensor(mean)
    shown = Standardize(mean, std, missing=missing)(values)
    assert shown.dtype == torch.float32
    assert torch.allclose(shown.double(), by_definition(values, mean, std), rtol=1e-6, atol=1e-6)


def test_a_mean_that_float32_rounds_makes_no_difference() -> None:
    mean, std = 16_777_217.25, 0.5  # float32 has steps of 2 here
    values = torch.tensor([[16_777_218.0], [16_777_220.0]])
    shown = Standardize([mean], [std])(values)
    assert shown[:, 0].tolist() == [1.5, 5.5]


def test_missing_values_become_the_mean_zero_or_an_indicator() -> None:
    values = torch.tensor([[NAN, 4.0], [1.0, NAN]])
    assert Standardize([1, 2], [2, 2])(values).tolist() == [[0, 1], [0, 0]]
    zero = Standardize([1, 2], [2, 2], missing="zero")(values)
    assert zero.tolist() == [[-0.5, 1], [0, -1]]
    module = Standardize([1, 2], [2, 2], missing="indicator", indicated=[1])
    assert module.out_features == 3
    assert module(values).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_a_table_gives_the_statistics_of_its_columns(tmp_path: Path) -> None:
    ds = open_table(write_people(tmp_path / "people"))
    batch = ds.__getitems__(range(50))
    module = Standardize.for_table(ds, missing="indicator")
    shown = module(batch["numeric"])
    # Ages and heights were missing in train.
    assert module.indicated.tolist() == [3, 5]
    assert shown.shape == (50, 9)
    assert not torch.isnan(shown).any()
    flags = torch.isnan(batch["numeric"][:, [3, 5]])
    assert torch.equal(shown[:, 7:], flags.float())
    standardized = open_table(ds.path, numeric="standardized").__getitems__(range(50))["numeric"]
    # Values that float32 can hold come out alike; times have lost what the other way keeps.
    exact = [ds.numeric_names.index(name) for name in ("age", "ok", "born", "height")]
    assert torch.allclose(shown[:, exact], standardized[:, exact], rtol=1e-5, atol=1e-6)


def test_constants_and_columns_without_values_are_divided_by_one(tmp_path: Path) -> None:
    specs = [
        ColumnSpec(
            name=str(number), kind="float", role="feature", dtype="float32", statistics=found
        )
        for number, found in enumerate([statistics([7, 7]), statistics([], 3), None])
    ]
    path = write_table(tmp_path / "t", specs, {"0": [7, 8], "1": [NAN, 2], "2": [NAN, 3]})
    ds = open_table(path)
    shown = Standardize.for_table(ds)(ds.__getitems__([0, 1])["numeric"])
    assert shown.tolist() == [[0, 0, 0], [1, 2, 3]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("asked", [False, True])
def test_the_output_has_the_dtype_asked_for_and_the_arithmetic_is_float32(
    dtype: torch.dtype, asked: bool
) -> None:
    module = Standardize([1e5], [3.0], dtype=dtype) if asked else Standardize([1e5], [3.0])
    model = nn.Sequential(module).to(dtype) if not asked else nn.Sequential(module)
    values = torch.tensor([[100_001.0], [NAN]])
    shown = model(values)
    assert shown.dtype == dtype
    assert module.center.dtype == torch.float32
    assert shown[:, 0].float().tolist() == [
        pytest.approx(1 / 3, rel=4e-3 if dtype != torch.float64 else 1e-6),
        0,
    ]


@pytest.mark.parametrize("assign", [False, True])
def test_statistics_travel_with_the_model(assign: bool) -> None:
    saved = Standardize([1, 2], [3, 4], missing="indicator", indicated=[1])
    fresh = Standardize([0, 0], [1, 1], missing="indicator", indicated=[0])
    fresh.load_state_dict(saved.state_dict(), assign=assign)
    values = torch.tensor([[NAN, NAN], [5.0, 6.0]])
    assert torch.equal(fresh(values), saved(values))
    assert sorted(saved.state_dict()) == ["center", "indicated", "rest", "scale"]


@pytest.mark.parametrize("missing", ["mean", "zero", "indicator"])
def test_a_compiled_module_gives_the_same(missing: Any) -> None:
    indicated = [0, 2] if missing == "indicator" else []
    module = Standardize([1, 2, 3], [1, 2, 3], missing=missing, indicated=indicated)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    values = torch.randn(8, 3).masked_fill(torch.rand(8, 3) < 0.3, NAN)
    assert torch.allclose(compiled(values), module(values))


def test_gradients_flow_to_values_that_are_there() -> None:
    values = torch.tensor([[1.0, NAN]], requires_grad=True)
    Standardize([0, 0], [2, 2])(values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0.5, 0]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float16])
def test_codes_and_narrow_floats_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(NormalizeError, match=f"numeric is {dtype}, expected float32"):
        Standardize([1, 2], [1, 1])(torch.zeros(4, 2).to(dtype))


@pytest.mark.parametrize("shape", [(4, 3), (2,), (4, 1), ()])
def test_another_number_of_columns_is_refused(shape: tuple[int, ...]) -> None:
    module = Standardize([1, 2], [1, 1])
    if shape == (2,):
        assert module(torch.zeros(shape)).shape == (2,)
        return
    with pytest.raises(NormalizeError, match="Cn = 2"):
        module(torch.zeros(shape))


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (([], []), {}, "at least one column"),
        (([1], [1, 2]), {}, "1 means and 2 standard deviations"),
        (([NAN], [1]), {}, "column 0: mean nan"),
        (([1, 1], [1, -1]), {}, "column 1: .*not negative"),
        (([1e300], [1]), {}, 'numeric="standardized"'),
        (([1], [1]), {"dtype": torch.int64}, r"dtype is torch\.int64"),
        (([1], [1]), {"missing": "median"}, "missing='median'"),
        (([1], [1]), {"missing": "indicator", "indicated": [1]}, r"indicated=\[1\]"),
        (([1], [1]), {"indicated": [0]}, r"indicated=\[0\]"),
    ],
)
def test_statistics_and_options_that_cannot_be_are_refused(
    arguments: Any, options: Any, said: str
) -> None:
    with pytest.raises((NormalizeError, SelectionError), match=said):
        Standardize(*arguments, **options)


def test_tables_that_need_no_standardizing_are_refused(tmp_path: Path) -> None:
    path = write_people(tmp_path / "people")
    with pytest.raises(SelectionError, match="standardized already"):
        Standardize.for_table(open_table(path, numeric="standardized"))
    spec = people_specs()[3]
    path = write_table(tmp_path / "codes", [spec], {"zip": np.ones(3)})
    with pytest.raises(SelectionError, match="no numeric columns"):
        Standardize.for_table(open_table(path))


def test_the_module_says_what_it_does() -> None:
    shown = repr(Standardize([1], [1], missing="indicator", indicated=[0]))
    assert "columns=1, missing='indicator', out_features=2, dtype=torch.float32" in shown
