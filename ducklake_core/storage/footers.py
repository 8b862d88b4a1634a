"""Parse the footers of Parquet files, check them, and read the statistics in them that can be trusted.

pyarrow ends the process on some damaged footers: its accessors of row groups and statistics throw C++ exceptions that no Python code can
catch. Footers of files that another program wrote are therefore parsed here, with the Thrift reader of ``encryption.compact``, and pyarrow
sees them only after they were checked. Whatever statistics contain that contradicts the schema or itself counts as unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.storage.encryption.compact import BadStructError, Items, Shape, Struct, read_struct, write_struct

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL = 8
"""Bytes behind the footer: its length and the magic."""
_FIRST_GUESS = 64 << 10
"""One request brings the footers of most files."""
_MAX_DEPTH = 100

# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData and Statistics (parquet.thrift).
_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES, _COLUMN_ORDERS, _ENCRYPTION = 2, 3, 4, 5, 7, 8
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _FIELD_ID, _LOGICAL = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
_COLUMNS, _GROUP_ROWS = 1, 3
_FILE_PATH, _CHUNK_METADATA, _CRYPTO = 1, 3, 8
_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC, _NUM_VALUES, _COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS = (
    1,
    2,
    3,
    4,
    5,
    7,
    9,
    11,
    12,
)
_OLD_MAX, _OLD_MIN, _NULL_COUNT, _MAX, _MIN = 1, 2, 3, 5, 6
_TYPE_ORDER = 1

_STATISTICS_SHAPE = Shape({_OLD_MAX: None, _OLD_MIN: None, _NULL_COUNT: None, _MAX: None, _MIN: None})
_CHUNK_SHAPE = Shape(
    {
        **dict.fromkeys((_CHUNK_TYPE, _ENCODINGS, _PATH, _CODEC, _NUM_VALUES, _COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE)),
        _STATISTICS: _STATISTICS_SHAPE,
    }
)
_GROUP_SHAPE = Shape({_COLUMNS: Shape({_FILE_PATH: None, _CHUNK_METADATA: _CHUNK_SHAPE, _CRYPTO: None}), _GROUP_ROWS: None})
_MAX_ENCODING, _SPLIT_ENCODING, _LZO, _LZ4, _MAX_CODEC = 9, 9, 3, 5, 7
_PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_REPETITIONS: tuple[Repetition, ...] = ("required", "optional", "repeated")
_FORMATS = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
_UNITS = {1: "ms", 2: "us", 3: "ns"}
_LOGICAL_NAMES = {
    1: "STRING", 2: "MAP", 3: "LIST", 4: "ENUM", 5: "DECIMAL", 6: "DATE", 7: "TIME", 8: "TIMESTAMP", 10: "INT", 11: "UNKNOWN", 12: "JSON",
    13: "BSON", 14: "UUID", 15: "FLOAT16", 16: "VARIANT", 17: "GEOMETRY", 18: "GEOGRAPHY",
}  # fmt: skip
_CONVERTED_NAMES = {
    0: "STRING", 1: "MAP", 2: "MAP", 3: "LIST", 4: "ENUM", 5: "DECIMAL", 6: "DATE", 7: "TIME", 8: "TIME", 9: "TIMESTAMP", 10: "TIMESTAMP",
    19: "JSON", 20: "BSON", 21: "INTERVAL",
}  # fmt: skip
_CONVERTED_UNITS: dict[int | None, str] = {7: "ms", 8: "us", 9: "ms", 10: "us"}
_FIRST_UNSIGNED, _FIRST_SIGNED, _LAST_INTEGER = 11, 15, 18

Repetition: TypeAlias = Literal["required", "optional", "repeated"]
Raw: TypeAlias = bool | int | float | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """The logical type of a node.

    Attributes:
        name: Its name in the Parquet specification, such as ``TIMESTAMP``; empty for none.
        unit: Of times and timestamps.
        is_utc: Whether a timestamp is an instant; None in files of old writers, which do not state it.
        scale: Of decimals.
        precision: Of decimals.
        bits: Of integers.
        is_signed: Of integers.
        is_new: Whether it has no converted type, which readers need that know only the old form of annotations.
    """

    name: str = ""
    unit: str = ""
    is_utc: bool | None = None
    scale: int = 0
    precision: int = 0
    bits: int = 0
    is_signed: bool = True
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the schema.

    Attributes:
        name: Its name.
        repetition: Whether its values may be NULL or repeated.
        annotation: Its logical type.
        field_id: Its id, None where it has none.
        children: Nodes below it; empty for a leaf.
        physical: Physical type of a leaf, empty for a group.
        length: Bytes of a value of a leaf of fixed length.
        position: Number of a leaf among all leaves, -1 for a group.
        path: Names from the top-level column down.
        one_per_row: Whether there is one value per row: neither the node nor one above it is repeated.
        never_null: Whether it is required, as all nodes above it are.
    """

    name: str
    repetition: Repetition
    annotation: Annotation
    field_id: int | None
    children: tuple[Node, ...] = ()
    physical: str = ""
    length: int = 0
    position: int = -1
    path: tuple[str, ...] = ()
    one_per_row: bool = True
    never_null: bool = True

    def leaves(self) -> Iterator[Node]:
        """Yield the leaves at and below this node, in the order of the file."""
        if self.physical:
            yield self
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True, slots=True)
class Chunk:
    """The values of one leaf in one row group.

    Attributes:
        num_values: Values, with a slot for each NULL or empty parent.
        compressed_size: Bytes in the file.
        null_count: Slots without a value, None for unknown.
        bounds: Raw bytes of the least and the greatest value; None where there are none that can be trusted.
        obstacle: Why DuckDB cannot decode them; empty if it can.
    """

    num_values: int
    compressed_size: int
    null_count: int | None
    bounds: tuple[bytes, bytes] | None
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of a file that are stored together, with one chunk for each leaf."""

    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The footer of a Parquet file.

    Attributes:
        file_size_bytes: Bytes of the whole file.
        content: The footer thrift.
        columns: Top-level columns.
        row_groups: The row groups.
    """

    file_size_bytes: int
    content: bytes = field(repr=False)
    columns: tuple[Node, ...]
    row_groups: tuple[RowGroup, ...]

    @property
    def record_count(self) -> int:
        """Return the number of rows in the row groups; some writers leave the total of the file at 0."""
        return sum(group.rows for group in self.row_groups)

    @property
    def footer_size(self) -> int:
        """Return the bytes of the footer thrift, without its length field and magic, as in ``ducklake_data_file``."""
        return len(self.content)

    def leaves(self) -> Iterator[Node]:
        """Yield all leaves in their order."""
        for column in self.columns:
            yield from column.leaves()

    def arrow_schema(self) -> pa.Schema:
        """Return the columns as Arrow reads them.

        Raises:
            pyarrow.ArrowException: Arrow has no type for a column.
        """
        return parsed(self.content).schema.to_arrow_schema()


def parsed(content: bytes) -> pq.FileMetaData:
    """Return a footer as pyarrow's object; without the Arrow types of its writer if pyarrow does not know them.

    Raises:
        pyarrow.ArrowException: pyarrow cannot read it.
    """
    try:
        return _metadata(content)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        try:
            plain = without_arrow_schema(content)
        except BadStructError:
            plain = content
        if plain == content:
            raise
        return _metadata(plain)


def _metadata(content: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(b"".join((MAGIC, content, len(content).to_bytes(4, "little"), MAGIC))))


def without_arrow_schema(content: bytes) -> bytes:
    """Return a footer without the Arrow types that its writer had, so that readers take those of Parquet."""
    tree, _ = read_struct(content)
    held = tree.get(_KEY_VALUES, (0, None))[1]
    if isinstance(held, Items):
        held.values = [item for item in held.values if not isinstance(item, Struct) or item.get(1, (0, b""))[1] != b"ARROW:schema"]
    return write_struct(tree)


def footer_content(source: pa.NativeFile, where: str) -> tuple[bytes, int]:
    """Read the footer thrift at the end of a file, unparsed, and the size of the file.

    Args:
        source: The file.
        where: Its path, for messages.

    Raises:
        CorruptFileError: It does not end like a Parquet file.
        UnsupportedFeatureError: Its footer is encrypted.
    """
    size = source.size()
    source.seek(max(size - _FIRST_GUESS, 0))
    end = source.read(min(size, _FIRST_GUESS))
    if end[-4:] == ENCRYPTED_MAGIC and len(end) >= TAIL:
        raise UnsupportedFeatureError(
            f"{where} is encrypted, and the catalog has no key for it; write its rows to the lake instead", path=where
        )
    if len(end) < TAIL or end[-4:] != MAGIC:
        raise CorruptFileError(f"{where} is not a Parquet file, or is truncated", path=where)
    length = int.from_bytes(end[-TAIL:-4], "little")
    if length + TAIL > size:
        raise CorruptFileError(f"{where} has {size} bytes, but its footer has {length}: it was cut, or is damaged", path=where)
    if length + TAIL > len(end):
        source.seek(size - TAIL - length)
        end = source.read(length + TAIL)
        if len(end) < length + TAIL:
            raise CorruptFileError(f"{where} ended while its footer was read", path=where)
    return bytes(end[len(end) - TAIL - length : -TAIL]), size


def read_footer_of(source: pa.NativeFile, where: str) -> Footer:
    """Read and check the footer of an open file.

    Args:
        source: The file.
        where: Its path, for messages.

    Raises:
        CorruptFileError: The file does not end like a Parquet file, or its footer contradicts itself.
        UnsupportedFeatureError: The file is encrypted, or its columns are in other files.
    """
    content, size = footer_content(source, where)
    return parse_footer(content, size, where)


def parse_footer(content: bytes, size: int, where: str) -> Footer:
    """Parse and check a footer.

    Args:
        content: The footer thrift.
        size: Bytes of the whole file.
        where: Its path, for messages.

    Raises:
        CorruptFileError: It is not a footer, or contradicts itself.
        UnsupportedFeatureError: Columns are encrypted, or in other files.
    """
    try:
        found = _parsed(content, size, where, None)
        if not all(found.orders or ()):
            # They come after the row groups.
            found = _parsed(content, size, where, found.orders)
    except (BadStructError, _DamageError) as error:
        raise CorruptFileError(f"the footer of {where} cannot be read: {error}", path=where) from error
    return Footer(file_size_bytes=size, content=content, columns=found.columns, row_groups=tuple(found.groups))


@dataclass(slots=True)
class _Parsed:
    """The parsed part of a footer. Row groups are converted one at a time, because the tree of a footer takes much memory.

    Attributes:
        end: Place in the file where its data ends.
        where: Path of the file, for messages.
        orders: For each leaf, whether its bounds are in the order of its type.
        columns: Top-level columns.
        leaves: What chunks of each leaf must have.
        groups: Row groups.
    """

    end: int
    where: str
    orders: list[bool] | None
    columns: tuple[Node, ...] = ()
    leaves: list[_Leaf] = field(default_factory=list)
    groups: list[RowGroup] = field(default_factory=list)

    def take_schema(self, tree: Struct) -> None:
        """Read the schema, which comes before the row groups."""
        if self.columns:
            return
        self.columns = tuple(_Schema(tree.structs(_SCHEMA)).columns())
        leaves = [leaf for column in self.columns for leaf in column.leaves()]
        orders = self.orders or [True] * len(leaves)
        self.leaves = [_Leaf(leaf, by_type) for leaf, by_type in zip(leaves, orders, strict=True)]
        if not leaves:
            raise _DamageError("there is no column")

    def take_group(self, tree: Struct, group: Struct) -> None:
        """Convert a row group."""
        self.take_schema(tree)
        rows, columns = group.number(_GROUP_ROWS), group.structs(_COLUMNS)
        if rows is None or rows < 0 or len(columns) != len(self.leaves):
            raise _DamageError(f"a row group has {rows} rows and {len(columns)} columns, the schema has {len(self.leaves)}")
        chunks = [_chunk(column, leaf, rows, self.end, self.where) for column, leaf in zip(columns, self.leaves, strict=True)]
        self.groups.append(RowGroup(rows, tuple(chunks)))


def _parsed(content: bytes, size: int, where: str, orders: list[bool] | None) -> _Parsed:
    found = _Parsed(size - TAIL - len(content), where, orders)
    wanted = dict.fromkeys((_SCHEMA, _NUM_ROWS, _COLUMN_ORDERS, _ENCRYPTION))
    tree, _ = read_struct(content, shape=Shape({**wanted, _ROW_GROUPS: Shape(_GROUP_SHAPE.fields, found.take_group)}))
    found.take_schema(tree)
    if _ENCRYPTION in tree:
        raise _encrypted(where, "")
    if not (tree.number(_NUM_ROWS) or 0) >= 0:
        raise _DamageError(f"there are {tree.number(_NUM_ROWS)} rows")
    found.orders = _type_orders(tree, len(found.leaves))
    return found


class _Leaf:
    """A leaf of the schema, and what its chunks must have."""

    __slots__ = ("bound_size", "by_type", "name", "node", "path", "physical")

    def __init__(self, node: Node, by_type: bool) -> None:
        self.node = node
        self.by_type = by_type
        self.name = ".".join(node.path)
        self.path = [part.encode() for part in node.path]
        self.physical = _PHYSICAL.index(node.physical)
        self.bound_size = _raw_size(node)


class _DamageError(ValueError):
    """A footer contradicts itself."""


def _encrypted(where: str, column: str) -> UnsupportedFeatureError:
    what = f"column {column!r} of {where}" if column else where
    return UnsupportedFeatureError(
        f"{what} is encrypted with a key that the catalog does not have; decrypt it, or write its rows to the lake instead", path=where
    )


class _Schema:
    """The list of schema elements, which are in the order of the tree, read as a tree."""

    def __init__(self, elements: list[Struct]) -> None:
        self._elements = elements
        self._next = 0
        self._leaves = 0

    def columns(self) -> Iterator[Node]:
        root = self._take()
        for _ in range(root.number(_CHILDREN) or 0):
            yield self._node((), one_per_row=True, never_null=True)
        if self._next < len(self._elements):
            raise _DamageError("the schema has nodes outside of its tree")

    def _take(self) -> Struct:
        if self._next >= len(self._elements):
            raise _DamageError("the schema ends within its tree")
        self._next += 1
        return self._elements[self._next - 1]

    def _node(self, above: tuple[str, ...], *, one_per_row: bool, never_null: bool) -> Node:
        element = self._take()
        name = _name(element)
        path = (*above, name)
        if len(path) > _MAX_DEPTH:
            raise _DamageError("columns are nested too deeply")
        repetition = element.number(_REPETITION)
        if repetition is None or not 0 <= repetition < len(_REPETITIONS):
            raise _DamageError(f"column {'.'.join(path)!r} has the repetition type {repetition}")
        one_per_row = one_per_row and _REPETITIONS[repetition] != "repeated"
        never_null = never_null and _REPETITIONS[repetition] == "required"
        count = element.number(_CHILDREN)
        kind = element.number(_TYPE)
        # Some writers give leaves 0 children.
        children: tuple[Node, ...] = ()
        physical, length, position = "", 0, -1
        if count is not None and (count or kind is None):
            if count < 0:
                raise _DamageError(f"column {'.'.join(path)!r} has {count} fields")
            children = tuple(self._node(path, one_per_row=one_per_row, never_null=never_null) for _ in range(count))
        else:
            if kind is None or not 0 <= kind < len(_PHYSICAL):
                raise _DamageError(f"column {'.'.join(path)!r} has the physical type {kind}")
            physical, length, position = _PHYSICAL[kind], element.number(_LENGTH) or 0, self._leaves
            if physical == "FIXED_LEN_BYTE_ARRAY" and length <= 0:
                raise _DamageError(f"column {'.'.join(path)!r} has values of {length} bytes")
            self._leaves += 1
        return Node(
            name=name,
            repetition=_REPETITIONS[repetition],
            annotation=_annotation(element),
            field_id=element.number(_FIELD_ID),
            children=children,
            physical=physical,
            length=length,
            position=position,
            path=path,
            one_per_row=one_per_row,
            never_null=never_null,
        )


def _name(element: Struct) -> str:
    raw = element.get(_NAME, (0, None))[1]
    if not isinstance(raw, bytes):
        raise _DamageError("a column has no name")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _DamageError(f"the name of column {raw!r} is not UTF-8; rename it with the program that wrote the file") from None


def _annotation(element: Struct) -> Annotation:
    union = element.struct(_LOGICAL)
    converted = element.number(_CONVERTED)
    if union:
        is_new = converted is None
        member = min(union)
        name, facts = _LOGICAL_NAMES.get(member, ""), union.struct(member) or Struct()
        if name in ("TIME", "TIMESTAMP"):
            units = facts.struct(2)
            unit = _UNITS.get(min(units)) if units else None
            if unit is None:
                raise _DamageError(f"a column of type {name} has no unit")
            return Annotation(name=name, unit=unit, is_utc=bool(facts.get(1, (0, False))[1]), is_new=is_new)
        if name == "DECIMAL":
            return _decimal(facts.number(1) or 0, facts.number(2), is_new=is_new)
        if name == "INT":
            bits = facts.number(1)
            if bits not in (8, 16, 32, 64):
                raise _DamageError(f"a column has integers of {bits} bits")
            return Annotation(name=name, bits=bits, is_signed=bool(facts.get(2, (0, True))[1]), is_new=is_new)
        return Annotation(name=name, is_new=is_new)
    if converted is None:
        return Annotation()
    if _FIRST_UNSIGNED <= converted <= _LAST_INTEGER:
        is_signed = converted >= _FIRST_SIGNED
        return Annotation(name="INT", bits=8 << (converted - (_FIRST_SIGNED if is_signed else _FIRST_UNSIGNED)), is_signed=is_signed)
    name = _CONVERTED_NAMES.get(converted, "")
    if name == "DECIMAL":
        return _decimal(element.number(_SCALE) or 0, element.number(_PRECISION))
    return Annotation(name=name, unit=_CONVERTED_UNITS.get(converted, ""))


def _decimal(scale: int, precision: int | None, *, is_new: bool = False) -> Annotation:
    if precision is None or precision < 1 or not 0 <= scale <= precision:
        raise _DamageError(f"a column has decimals of {precision} digits, {scale} of them after the point")
    return Annotation(name="DECIMAL", scale=scale, precision=precision, is_new=is_new)


def _type_orders(tree: Struct, leaves: int) -> list[bool]:
    """Return for each leaf whether its bounds are in the order of its type, which files of some writers do not state."""
    orders = tree.structs(_COLUMN_ORDERS)
    return [number >= len(orders) or _TYPE_ORDER in orders[number] for number in range(leaves)]


def _chunk(column: Struct, leaf: _Leaf, rows: int, end: int, where: str) -> Chunk:
    if _CRYPTO in column:
        raise _encrypted(where, leaf.name)
    if _FILE_PATH in column:
        raise UnsupportedFeatureError(f"column {leaf.name!r} of {where} is in another file, which is not supported", path=where)
    held = column.struct(_CHUNK_METADATA)
    if held is None:
        raise _DamageError(f"column {leaf.name!r} has no metadata in a row group")
    names = held.get(_PATH, (0, None))[1]
    if held.number(_CHUNK_TYPE) != leaf.physical or not isinstance(names, Items) or names.values != leaf.path:
        raise _DamageError(f"a row group has another column where {leaf.name!r} is expected")
    values, size, start = held.number(_NUM_VALUES), held.number(_COMPRESSED_SIZE), held.number(_DATA_PAGE)
    if values is None or size is None or start is None or values < 0 or size < 0 or start < 0:
        raise _DamageError(f"column {leaf.name!r} has {values} values in {size} bytes at {start}")
    if values < rows or (leaf.node.one_per_row and values != rows):
        raise _DamageError(f"column {leaf.name!r} has {values} values in {rows} rows")
    dictionary = held.number(_DICTIONARY_PAGE)
    first = start if dictionary is None or not 0 < dictionary < start else dictionary
    if first + size > end:
        raise _DamageError(f"column {leaf.name!r} goes on beyond the data of the file, which was cut")
    obstacle = _form_obstacle(held, leaf, where)
    statistics = held.struct(_STATISTICS)
    if statistics is None:
        return Chunk(values, size, None, None, obstacle)
    nulls = statistics.number(_NULL_COUNT)
    if nulls is not None and not 0 <= nulls <= values:
        nulls = None
    if leaf.bound_size:
        for number in (_OLD_MAX, _OLD_MIN, _MAX, _MIN):
            part = statistics.get(number, (0, None))[1]
            if isinstance(part, bytes) and len(part) != leaf.bound_size:
                # Arrow does not read such a column at all.
                raise _DamageError(f"the bounds of column {leaf.name!r} are not values of type {leaf.node.physical}")
    return Chunk(values, size, nulls, _bounds(statistics, leaf.node, by_type=leaf.by_type), obstacle)


def _form_obstacle(held: Struct, leaf: _Leaf, where: str) -> str:
    """Return why DuckDB cannot decode the pages of a chunk, by its compression and encodings; empty if it can.

    Raises:
        UnsupportedFeatureError: Arrow cannot decode them either.
    """
    codec, encodings = held.number(_CODEC), held.get(_ENCODINGS, (0, None))[1]
    numbers = encodings.values if isinstance(encodings, Items) else []
    unknown = [number for number in numbers if isinstance(number, int) and number > _MAX_ENCODING]
    if unknown or codec == _LZO or (codec or 0) > _MAX_CODEC:
        what = f"encoding {unknown[0]}" if unknown else f"compression {'LZO' if codec == _LZO else codec}"
        raise UnsupportedFeatureError(
            f"column {leaf.name!r} of {where} has the {what} of the Parquet specification, which is not supported; write its rows with the "
            "program that reads it",
            path=where,
        )
    if codec == _LZ4:
        return "has the deprecated LZ4 compression"
    if _SPLIT_ENCODING in numbers and leaf.node.physical not in ("FLOAT", "DOUBLE"):
        return "has the encoding BYTE_STREAM_SPLIT and is not a float"
    return ""


def _raw_size(leaf: Node) -> int:
    """Return the bytes of a bound of a leaf; 0 where they differ, or are not read."""
    match leaf.physical:
        case "BOOLEAN":
            return 1
        case "FIXED_LEN_BYTE_ARRAY":
            return leaf.length
        case physical:
            return struct.calcsize(_FORMATS[physical]) if physical in _FORMATS else 0


def _bounds(statistics: Struct, leaf: Node, *, by_type: bool) -> tuple[bytes, bytes] | None:
    low, high = (statistics.get(number, (0, None))[1] for number in (_MIN, _MAX))
    if isinstance(low, bytes) and isinstance(high, bytes):
        return (low, high) if by_type else None
    # The deprecated pair has no defined order. Writers compared numbers as signed, and bytes either way: those of decimals and strings
    # hide rows, also where both are equal (PARQUET-251).
    low, high = (statistics.get(number, (0, None))[1] for number in (_OLD_MIN, _OLD_MAX))
    if leaf.physical not in ("BOOLEAN", *_FORMATS) or not isinstance(low, bytes) or not isinstance(high, bytes):
        return None
    if not leaf.annotation.is_signed and any(part[-1:] >= b"\x80" for part in (low, high)):
        return None
    return low, high


def raw_bounds(chunk: Chunk, leaf: Node) -> tuple[Raw, Raw] | None:
    """Return the bounds of a chunk as physical values; None where they are unknown or cannot be bounds of such values.

    Args:
        chunk: The chunk.
        leaf: Its leaf.
    """
    if chunk.bounds is None or leaf.physical == "INT96":
        return None
    low, high = (_raw(part, leaf) for part in chunk.bounds)
    return None if low is None or high is None else (low, high)


def _raw(content: bytes, leaf: Node) -> Raw | None:
    if leaf.physical == "BYTE_ARRAY":
        return content
    if len(content) != _raw_size(leaf):
        return None
    if leaf.physical == "FIXED_LEN_BYTE_ARRAY":
        return content
    if leaf.physical == "BOOLEAN":
        return content == b"\x01" if content in (b"\x00", b"\x01") else None
    value: int | float = struct.unpack(_FORMATS[leaf.physical], content)[0]
    return value
