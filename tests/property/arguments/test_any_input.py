"""A wrong argument raises an error that a caller can expect, and leaves the lake as it was."""

from __future__ import annotations

import inspect
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, UsageError
from tests.property.arguments.hostile import VALUES
from tests.property.arguments.surface import FEW, RESULTS, LakeCopy, Method, build, call, methods
from tests.support.parameters import spread

_COMMIT = ("author", "message", "extra_info", "commit_id", "nonsense")
_OF_A_SESSION = ("register", "to_spark")
_WITHOUT_COMMIT_ID = ("check", "checkpoint", "flush_inlined_data", "merge_adjacent_files", "purge", "rewrite_data_files")
_CALLS = [
    (method, name)
    for method in methods()
    if method.name != "to_spark"
    for parameter in method.parameters
    for name in (_COMMIT if parameter.kind is inspect.Parameter.VAR_KEYWORD else (parameter.name,))
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> LakeCopy:
    folder = tmp_path_factory.mktemp("any-input")
    return build(folder, f"sqlite:///{folder}/lake.sqlite")


class Copies:
    """A fresh copy of the lake for every call that got through."""

    def __init__(self, template: LakeCopy, folder: Path) -> None:
        self._template = template
        self._folder = folder
        self._spent = 0

    def copy(self) -> LakeCopy:
        folder = self._folder / str(self._spent)
        if not folder.exists():
            shutil.copytree(self._template.folder, folder)
        return LakeCopy(folder=folder, url=f"sqlite:///{folder}/lake.sqlite")

    def spend(self) -> None:
        self._spent += 1


@pytest.fixture
def copies(template: LakeCopy, tmp_path: Path) -> Copies:
    return Copies(template, tmp_path)


def attempt(copies: Copies, method: Method, changed: dict[str, Any]) -> None:
    copy = copies.copy()
    lake = DuckLake.connect(copy.url, data_path=f"{copy.folder}/files/", override_data_path=True)
    before, files = lake.snapshot().id, sorted(copy.folder.rglob("*.parquet"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            call(method, lake, method.valid(copy) | changed)
        copies.spend()
    except (DuckLakeError, TypeError, AttributeError) as error:
        # The two of Python are for a type that no method documents.
        str(error)
        assert (lake.snapshot().id, sorted(copy.folder.rglob("*.parquet"))) == (before, files)
    finally:
        lake.close()


_strings = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="\0\ud800\udfff\"'().,;-[]{}<>=%_ \n\u3000abAB19", max_size=40),
    st.sampled_from([text for text in VALUES.values() if isinstance(text, str)]),
)
_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**63), 2**70]),
    st.floats(),
    _strings,
    st.binary(max_size=8),
    st.datetimes(),
    st.datetimes(timezones=st.timezones()),
    st.timedeltas(),
    st.dates(),
    st.times(),
    st.decimals(),
    st.uuids(),
    st.complex_numbers(),
)
_nested = st.recursive(
    _plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(_strings, st.integers()), inner, max_size=3)),
    max_leaves=6,
)
# Hostile values are drawn by their labels: Hypothesis prints what it draws, and some of them have no repr.
_values = st.one_of(st.tuples(st.just("plain"), _nested), st.tuples(st.just("hostile"), st.sampled_from(list(VALUES))))


def _check(copies: Copies, data: st.DataObject) -> None:
    method, first = data.draw(st.sampled_from(_CALLS))
    names = {first, *data.draw(st.lists(st.sampled_from([name for one, name in _CALLS if one == method]), max_size=1))}
    attempt(copies, method, {name: _meant(*data.draw(_values, label=name)) for name in sorted(names)})


def _meant(kind: str, value: Any) -> Any:
    return VALUES[value] if kind == "hostile" else value


_ANY = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


@given(data=st.data())
@settings(max_examples=100, derandomize=True, **_ANY)
def test_some_calls(copies: Copies, data: st.DataObject) -> None:
    _check(copies, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(data=st.data())
@settings(max_examples=5000, **_ANY)
def test_many_calls(copies: Copies, data: st.DataObject) -> None:
    _check(copies, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("method", methods(), ids=str)
def test_every_parameter_with_every_hostile_value(copies: Copies, method: Method) -> None:
    for one, name in _CALLS:
        for value in VALUES.values():
            if one == method:
                attempt(copies, method, {name: value})


@pytest.mark.parametrize("method", spread([method for method in methods() if method.name not in _OF_A_SESSION], 60), ids=str)
def test_valid_arguments_are_valid(copies: Copies, method: Method) -> None:
    """Otherwise the tests above would only see errors of other arguments."""
    copy = copies.copy()
    lake = DuckLake.connect(copy.url, data_path=f"{copy.folder}/files/", override_data_path=True)
    expected = {"Transaction.drop_not_null", "Table.drop_not_null", "DuckLake.migrate", "Merge.execute"}
    try:
        call(method, lake, method.valid(copy))
    except UsageError:
        assert str(method) in expected
    finally:
        lake.close()


def test_unknown_names_raise(copies: Copies) -> None:
    copy = copies.copy()
    lake = DuckLake.connect(copy.url, data_path=f"{copy.folder}/files/", override_data_path=True)
    for method in methods():
        if any(parameter.name == "commit" for parameter in method.parameters):
            last = "message and extra_info" if method.name in _WITHOUT_COMMIT_ID else "extra_info and commit_id"
            with pytest.raises(UsageError, match=rf"Unexpected argument 'nonsense'\. Commit options are author, .*{last}"):
                call(method, lake, method.valid(copy) | {"nonsense": 1})
        else:
            with pytest.raises((TypeError, UsageError), match="nonsense"):
                call(method, lake, method.valid(copy) | {"nonsense": 1})
    # These belong to the creation of a table, which none of them does.
    for name, value in (("comment", "x"), ("partition_by", ["id"]), ("create", True), ("mode", "append")):
        with pytest.raises((UsageError, TypeError), match=name):
            lake.table("t").append(FEW, **{name: value})
    lake.close()


def test_results_take_nothing() -> None:
    """Results have no methods with parameters, which would need checks."""
    taking = [
        f"{cls.__name__}.{name}"
        for cls in RESULTS
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(function).parameters) > 1
    ]
    assert not taking


_DEFAULTS = [
    (method, parameter.name)
    for method in methods()
    for parameter in method.parameters
    if parameter.default is not inspect.Parameter.empty and parameter.default is not None
]
_NEEDS_MORE = ("move_data", "purge")
"""Calls that fail on this lake with any arguments."""


def test_every_class_treats_none_as_not_given() -> None:
    assert all(hasattr(method.function, "__wrapped__") for method, _ in _DEFAULTS), "none_means_default is missing on a class"


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), [one for one in _DEFAULTS if one[0].name not in _NEEDS_MORE], ids=str)
def test_none_is_the_default(method: Method, name: str, copies: Copies) -> None:
    copy = copies.copy()
    with DuckLake.connect(copy.url, data_path=f"{copy.folder}/files/", override_data_path=True) as lake:
        call(method, lake, {**method.valid(copy), name: None})
