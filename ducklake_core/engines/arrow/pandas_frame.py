"""Arrow tables as pandas frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import UnsupportedFeatureError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from ducklake_core.engines.arrow.readable import DtypeBackend

_BACKENDS = ("numpy", "numpy_nullable", "pyarrow")
_LARGEST_EXACT = 2**53
"""Up to here a float of 64 bits holds every whole number."""


def pandas_frame(table: pa.Table, dtype_backend: DtypeBackend) -> pd.DataFrame:
    """The rows of a table as a pandas frame; see :meth:`~ducklake_core.engines.arrow.readable.Readable.to_pandas`."""
    if dtype_backend not in _BACKENDS:
        raise UsageError(f"dtype_backend must be one of {', '.join(_BACKENDS)}, not {dtype_backend!r}", parameter="dtype_backend")
    if dtype_backend == "numpy":
        _check_exact(table)
        return _converted(table, None)
    import pandas as pd

    if dtype_backend == "pyarrow":
        # The storage of extension types: pandas knows no arithmetic of theirs.
        return table.to_pandas(types_mapper=pd.ArrowDtype)
    nullable = {pa.from_numpy_dtype(kind.type): kind for kind in _nullable_numbers()}
    nullable |= {pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
    return _converted(table, nullable.get)


def _converted(table: pa.Table, types_mapper: Callable[[Any], Any] | None) -> pd.DataFrame:
    try:
        return table.to_pandas(types_mapper=types_mapper)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        name = next(name for name in table.column_names if not _converts(table.select([name]), types_mapper))
        message = (
            f"column {name!r} has values that pandas does not hold in this form ({error}): pass dtype_backend='pyarrow', or use to_arrow()"
        )
        raise UnsupportedFeatureError(message, column=name) from error


def _converts(table: pa.Table, types_mapper: Callable[[Any], Any] | None) -> bool:
    try:
        table.to_pandas(types_mapper=types_mapper)
    except (ValueError, OverflowError, pa.ArrowException):
        return False
    return True


def _nullable_numbers() -> Iterator[Any]:
    import pandas as pd

    yield from (pd.Int8Dtype(), pd.Int16Dtype(), pd.Int32Dtype(), pd.Int64Dtype())
    yield from (pd.UInt8Dtype(), pd.UInt16Dtype(), pd.UInt32Dtype(), pd.UInt64Dtype())
    yield from (pd.Float32Dtype(), pd.Float64Dtype())


def _check_exact(table: pa.Table) -> None:
    """Whole numbers beside NULLs become floats, which must not change them."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            for numbers in _numbers_as_floats(chunk, has_nulls=bool(column.null_count)):
                found = pc.min_max(numbers).as_py()
                if found["min"] is not None and max(-found["min"], found["max"]) > _LARGEST_EXACT:
                    raise UsageError(
                        f"column {name!r} has NULLs and whole numbers beyond 2^53, which pandas would round to floats: pass "
                        "dtype_backend='numpy_nullable' or 'pyarrow'",
                        column=name,
                    )


def _numbers_as_floats(values: pa.Array[Any], *, has_nulls: bool) -> Iterator[pa.Array[Any]]:
    """Whole numbers of 64 bits that pandas holds as floats: of a column with NULLs, and of lists with them; structs become dicts."""
    if values.type in (pa.int64(), pa.uint64()):
        if has_nulls:
            yield values
    elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        inner = values.flatten()
        yield from _numbers_as_floats(inner, has_nulls=bool(inner.null_count))
