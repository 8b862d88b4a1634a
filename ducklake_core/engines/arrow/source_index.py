"""The rows of a MERGE's source by key, to look up the rows of the target in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.comparable import hashable, unified
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import Domain, common_domain
from ducklake_core.format.types.data_types import Field


class SourceIndex:
    """Looks rows up by key, as SQL compares: NULL equals nothing, NaN equals NaN, 0.0 equals -0.0.

    Args:
        source: All rows of the source, in flat form.
        keys: Column of the target, column of the source (by its flat name) for each part of the key.
    """

    def __init__(self, source: pa.RecordBatch, keys: Sequence[tuple[Field, Field]]) -> None:
        self._source = source
        self._keys = [(target, column, key_domain(target, column)) for target, column in keys]

    def pairs(self, rows: pa.RecordBatch, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Places of target and source rows whose keys are equal.

        Args:
            rows: Rows of the target.
            names: Names of their key columns.
        """
        if not rows.num_rows or not self._source.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        targets, sources = np.zeros(rows.num_rows, np.int64), np.zeros(self._source.num_rows, np.int64)
        for (target, column, domain), name in zip(self._keys, names, strict=True):
            ours, theirs = unified(rows.column(name), target.type, self._source.column(column.name), column.type, domain)
            ours, theirs = hashable(ours), hashable(theirs)
            distinct = theirs.unique().drop_null()
            target_codes, source_codes = (_codes(array, distinct) for array in (ours, theirs))
            size = len(distinct) + 1
            targets = np.where((targets < 0) | (target_codes < 0), -1, targets * size + target_codes)
            sources = np.where((sources < 0) | (source_codes < 0), -1, sources * size + source_codes)
            # Numbers of combinations stay small, however many parts a key has.
            _, dense = np.unique(np.concatenate([targets, sources]), return_inverse=True)
            dense = dense.reshape(-1)
            targets, sources = (
                np.where(targets < 0, -1, dense[: len(targets)]),
                np.where(sources < 0, -1, dense[len(targets) :]),
            )
        order = np.argsort(sources, kind="stable")
        ordered = sources[order]
        first, last = np.searchsorted(ordered, targets, "left"), np.searchsorted(ordered, targets, "right")
        counts = np.where(targets < 0, 0, last - first)
        matched = np.repeat(np.arange(len(targets)), counts)
        offsets = np.arange(len(matched)) - np.repeat(np.cumsum(counts) - counts, counts)
        return matched, order[np.repeat(first, counts) + offsets]


def key_domain(target: Field, source: Field) -> Domain:
    """The domain in which two columns are compared.

    Raises:
        UnsupportedFeatureError: They cannot be compared without a cast, or not at all.
    """
    domain = common_domain(target.type, source.type)
    if domain is None:
        raise UnsupportedFeatureError(
            f"column {target.name!r} of type {target.type} cannot be matched with {source.name!r} of type {source.type}; "
            "cast the source's column first",
            column=target.name,
        )
    return domain


def _codes(array: Any, distinct: Any) -> np.ndarray:
    found: np.ndarray = np.asarray(pc.fill_null(pc.index_in(array, value_set=distinct), -1)).astype(np.int64)
    return np.where(np.asarray(array.is_null()), -1, found)


def distinct_values(array: Any) -> Any:
    """The different values of a column, NULL left out."""
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, array.storage.unique().drop_null())
    return array.unique().drop_null()
