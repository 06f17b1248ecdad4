"""Splits are disjoint, complete and stable, and exact where they say so."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preprocess.errors import SourceError
from preprocess.tables.fit_rows import Rows
from preprocess.tables.leaks import count_leaks
from preprocess.tables.options import TableOptions
from preprocess.tables.schema import decide
from preprocess.tables.splits import (
    SKIPPED,
    Strata,
    cuts,
    place_hashes,
    split_by_hash,
    split_by_value,
    text_hashes,
)
from tests.table_parsed import csv_blocks, fit_blocks, spill_blocks

SHARES = st.tuples(st.integers(0, 4), st.integers(1, 4)).map(
    lambda pair: TableOptions(validation=pair[0] / 10, test=pair[1] / 10)
)


def splits_of(fitted):
    return np.concatenate(fitted.splits).tolist()


def test_a_row_keeps_its_split_whatever_the_other_rows_are():
    options = TableOptions(validation=0.2, test=0.1)
    rows = np.arange(1, 1001)
    whole = split_by_hash(place_hashes("a.csv", rows, 0), options)
    part = split_by_hash(place_hashes("a.csv", rows[500:], 0), options)
    assert (whole[500:] == part).all()


def test_shares_are_those_asked_for_about_and_other_seeds_and_files_give_other_rows():
    options = TableOptions(validation=0.2, test=0.1)
    rows = np.arange(1, 20_001)
    found = split_by_hash(place_hashes("a.csv", rows, 0), options)
    assert np.abs(np.bincount(found) / len(rows) - [0.7, 0.2, 0.1]).max() < 0.02
    for key, seed in (("a.csv", 1), ("b.csv", 0)):
        other = split_by_hash(place_hashes(key, rows, seed), options)
        assert 0.4 < (other == found).mean() < 0.7


def test_hashes_of_places_are_the_same_for_ever():
    import pyarrow as pa

    assert place_hashes("a.csv", np.array([1, 2]), 0).tolist() == [
        4725546071492550584,
        9008717853940524014,
    ]
    assert text_hashes(pa.array(["", "é"], pa.large_string())).tolist() == [
        12035550249420947055,
        7603054027950722306,
    ]
    assert len(set(place_hashes("a.csv", np.arange(100_000), 0).tolist())) == 100_000


@given(st.lists(st.text(), min_size=1), st.integers(0, 3))
def test_equal_texts_have_equal_hashes_wherever_they_stand(words, start):
    import pyarrow as pa

    array = pa.array(words, pa.large_string())
    found = text_hashes(array).tolist()
    assert found[start:] == text_hashes(array[start:]).tolist()
    assert len(set(found)) == len(set(words))


def test_texts_longer_than_what_is_hashed_at_a_time_have_hashes_of_their_own():
    import pyarrow as pa

    words = ["a" * (3 << 20), "b", "a" * (3 << 20) + "b", "", "b"]
    found = text_hashes(pa.array(words, pa.large_string())).tolist()
    assert found[1] == found[4]
    assert len(set(found)) == 4
    assert found[0] == text_hashes(pa.array(words[:1], pa.large_string())).tolist()[0]


@given(st.integers(0, 10_000), SHARES)
def test_cuts_give_the_shares_rounded(count, options):
    first, second = cuts(count, options)
    assert 0 <= first <= second <= count
    assert abs(count - second - options.test * count) <= 0.5 + 1e-6
    assert abs(count - first - (options.test + options.validation) * count) <= 0.5 + 1e-6


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=80),
    SHARES,
    st.integers(1, 30),
)
def test_every_class_has_its_exact_shares_even_where_hashes_are_equal(rows, options, size):
    classes = np.array([c for c, _ in rows], np.int64)
    # Few different hashes: ties everywhere.
    hashes = np.array([h for _, h in rows], np.uint64) << np.uint64(60)
    parts = [(classes[i : i + size], hashes[i : i + size]) for i in range(0, len(rows), size)]
    strata = Strata(parts, 5, options)
    found = np.concatenate([np.empty(0, np.uint8), *(strata.split(*part) for part in parts)])
    for number in range(5):
        mine = found[classes == number]
        first, second = cuts(len(mine), options)
        counts = np.bincount(mine, minlength=3).tolist()
        assert counts == [first, second - first, len(mine) - second]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=60), SHARES, st.integers(1, 60))
def test_the_last_rows_by_time_are_test_and_those_before_validation(tmp_path, times, options, size):
    text = "t,x\n" + "".join(f"2024-01-{1 + t:02d},{n}\n" for n, t in enumerate(times))
    options = TableOptions(validation=options.validation, test=options.test, split_by_time="t")
    first, second = cuts(len(times), options)
    ordered = sorted(times)
    starts = [ordered[rank] if rank < len(ordered) else None for rank in (first, second)]
    expected = split_by_value(np.array(times), *starts)
    if not (expected == 0).any():
        with pytest.raises(SourceError, match="no row is left for train"):
            fit_blocks(tmp_path / "a", csv_blocks(text, size), options)
        return
    fitted = fit_blocks(tmp_path / "a", csv_blocks(text, size), options)
    got = [0] * len(times) if fitted.splits is None else splits_of(fitted)
    assert got == expected.tolist()


def test_a_row_without_a_time_is_refused_by_line(tmp_path):
    text = "t,x\n2024-01-01,1\n,2\n2024-01-03,3\n"
    options = TableOptions(test=0.3, split_by_time="t")
    with pytest.raises(SourceError, match=r"^a.csv:3: column 't': no value"):
        fit_blocks(tmp_path, csv_blocks(text), options)


def test_rows_of_a_group_go_together_whatever_the_type_of_their_block(tmp_path):
    # Blocks of numbers alone are integers; a block with a word holds text.
    groups = ["1", "2", "3", "1", "word", "2", "3", "2"] * 30
    text = "g,x\n" + "".join(f"{group},{n}\n" for n, group in enumerate(groups))
    options = TableOptions(test=0.5, group_by="g", ignore=("g",))
    fitted = fit_blocks(tmp_path, csv_blocks(text, 3), options)
    found = Counter(zip(groups, splits_of(fitted), strict=True))
    assert len(found) == len(set(groups))
    assert [spec.name for spec in fitted.schema.columns] == ["x"]


def test_strata_of_a_table_have_their_shares_and_skip_rows_without_a_target(tmp_path):
    classes = (["yes"] * 30 + ["no"] * 50 + [""] * 7 + ["perhaps"] * 20) * 2
    text = "x,y\n" + "".join(f"{n},{value}\n" for n, value in enumerate(classes))
    options = TableOptions(target="y", validation=0.2, test=0.1, stratify=True)
    fitted = fit_blocks(tmp_path, csv_blocks(text, 11), options)
    found = Counter(zip(classes, splits_of(fitted), strict=True))
    assert found == {
        ("yes", 0): 42, ("yes", 1): 12, ("yes", 2): 6,
        ("no", 0): 70, ("no", 1): 20, ("no", 2): 10,
        ("perhaps", 0): 28, ("perhaps", 1): 8, ("perhaps", 2): 4,
        ("", SKIPPED): 14,
    }  # fmt: skip
    assert (fitted.counts, fitted.skipped) == ((140, 40, 20), 14)


def test_strata_need_classes(tmp_path):
    text = "x,y\n" + "".join(f"{n},{n}.5\n" for n in range(50))
    options = TableOptions(target="y", test=0.1, stratify=True)
    with pytest.raises(SourceError, match="--stratify: only with a target of classes"):
        fit_blocks(tmp_path, csv_blocks(text), options)


def test_a_class_that_is_too_small_for_the_splits_is_named(tmp_path):
    text = "x,y\n" + "".join(f"{n},{'rare' if n == 3 else 'often'}\n" for n in range(50))
    options = TableOptions(target="y", test=0.1, stratify=True)
    fitted = fit_blocks(tmp_path, csv_blocks(text), options)
    assert "target 'y': a class has only 1 rows, too few for every split" in fitted.notes


@pytest.mark.parametrize("held", [1, 3, 1 << 20])
def test_rows_with_the_features_of_a_row_of_train_are_counted(tmp_path, held):
    rng = np.random.default_rng(1)
    rows = [
        (f"w{a}", int(b), f"{c}.50" if c else f"{c}.5") for a, b, c in rng.integers(0, 3, (120, 3))
    ]
    text = "s,i,f,y\n" + "".join(f"{s},{i},{f},{n}\n" for n, (s, i, f) in enumerate(rows))
    options = TableOptions(target="y", validation=0.3, test=0.2)
    spilled = spill_blocks(tmp_path, csv_blocks(text, 17), options)
    plans = decide(spilled.evidence, spilled.columns, options)
    splits = [
        split_by_hash(np.arange(b.count, dtype=np.uint64) << np.uint64(60), options)
        for b in spilled.blocks
    ]
    table = Rows(blocks=spilled.blocks, splits=splits, options=options)
    flat = np.concatenate(splits)
    train = {row for row, code in zip(rows, flat, strict=True) if code == 0}
    expected = [0] + [
        sum(row in train for row, code in zip(rows, flat, strict=True) if code == split)
        for split in (1, 2)
    ]
    assert expected[1] > 0
    with ThreadPoolExecutor(2) as pool:
        assert list(count_leaks(plans, table, pool, 2, held)) == expected


def test_a_number_that_is_written_in_two_ways_is_the_same_row(tmp_path):
    import pyarrow as pa

    from tests.table_parsed import table_blocks

    table = pa.table({"f": [0.0, -0.0, None, float("nan")], "v": [[1.0], [1.0], None, None]})
    spilled = spill_blocks(tmp_path, table_blocks(table, 2), TableOptions())
    plans = decide(spilled.evidence, spilled.columns, TableOptions())
    splits = [np.array([0, 1], np.uint8), np.array([0, 2], np.uint8)]
    rows = Rows(blocks=spilled.blocks, splits=splits, options=TableOptions())
    with ThreadPoolExecutor(1) as pool:
        assert count_leaks(plans, rows, pool, 1) == (0, 1, 1)


def test_files_with_splits_of_their_own_are_fitted_on_train_alone(tmp_path):
    from preprocess.tables.fit import fit

    blocks = [
        *csv_blocks("c,n\na,1\na,2\n", key="train/a.csv"),
        *csv_blocks("c,n\nb,300\na,2\n", key="test/b.csv"),
    ]
    options = TableOptions()
    spilled = spill_blocks(tmp_path, blocks, options, {"test/b.csv": "test"})
    fitted = fit(spilled, decide(spilled.evidence, spilled.columns, options), options, 1)
    assert fitted.splits is None
    assert fitted.counts == (2, 0, 2)
    assert fitted.unknown["c"] == (0, 0, 1)
    assert fitted.schema.column("n").dtype == "uint16"
    assert fitted.schema.column("n").statistics.maximum == 2
    assert "leaks: 1 of 2 rows of test (50.0%) have the same features as a row of train" in (
        fitted.notes
    )
    with pytest.raises(SourceError, match="have splits already"):
        fit(spilled, decide(spilled.evidence, spilled.columns, options), TableOptions(test=0.1), 1)


def test_a_table_whose_rows_are_all_of_other_splits_is_refused(tmp_path):
    from preprocess.tables.fit import fit

    options = TableOptions()
    spilled = spill_blocks(tmp_path, csv_blocks("n\n1\n2\n"), options, {"a.csv": "test"})
    with pytest.raises(SourceError, match="no row is of the train split"):
        fit(spilled, decide(spilled.evidence, spilled.columns, options), options, 1)
