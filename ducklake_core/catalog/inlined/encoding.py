"""Values of inlined rows as each kind of database stores them (specification: Data Inlining); the inverse of what inlined.py reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.inlined.nested_text import MARK
from ducklake_core.catalog.inlined.variants import join_variant
from ducklake_core.format.types.data_types import BLOB, JSON, VARCHAR, DataType, ListType, MapType, PrimitiveType, StructType
from ducklake_core.format.values.value_text import to_cast_text
from ducklake_core.format.values.variant_encoding import is_readable_variant

Encode = Callable[[object], object]

_NUMBERS_AMONG_TEXTS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_NUMBERS_OF_OTHERS = frozenset({*_NUMBERS_AMONG_TEXTS, "boolean", "float64"})
_SPECIAL = frozenset(",[]{}()'\":=")
_CLOSING = frozenset("]}")
_DEEP = 2


def encoder(data_type: DataType, abilities: Abilities) -> Encode:
    """Get the function that turns the values of a column into parameters.

    PostgreSQL and DuckDB turn the texts into the column's type themselves: they are the only form that loses nothing of
    months, infinities, years before 1, 24:00:00 and numbers of any length.
    """
    if not isinstance(data_type, PrimitiveType):
        if isinstance(data_type, ListType | MapType | StructType):
            return lambda value: None if value is None else nested_text(value, data_type)
        return lambda value: None if value is None else to_cast_text(value, data_type)
    match data_type.name:
        case "blob":
            return _as_it_is
        case "variant":
            return lambda value: join_variant(value) if isinstance(value, dict) else None
        case "varchar" | "json":
            return _utf8 if abilities.inlined_text_as_bytes else _as_it_is
        case "boolean" if abilities.boolean_as_integer:
            return lambda value: None if value is None else int(bool(value))
        case name if name in (_NUMBERS_AMONG_TEXTS if abilities.inlined_as_text else _NUMBERS_OF_OTHERS):
            return _as_it_is
        case _:
            return lambda value: None if value is None else to_cast_text(value, data_type)


def _as_it_is(value: object) -> object:
    return value


def _utf8(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


def nested_text(value: object, data_type: DataType) -> str:
    r"""The text of a nested value that DuckDB's parser reads: as its ``CAST(value AS VARCHAR)`` writes it.

    For structs outside of lists and maps DuckDB itself writes SQL literals, which its parser does not always read. Where both
    mean the same, strings in them are quoted as there; where they do not, because of a quote or a backslash, a blank follows the
    first brace, which DuckDB never writes and skips.

    >>> from ducklake_core.format.types.data_types import *
    >>> nested_text(["a", "x,y", None, "", "it's", "b\\s"], ListType(element=Field(name="element", type=VARCHAR)))
    "[a, 'x,y', NULL, '', 'it\\'s', b\\s]"
    >>> nested_text([("k", 1), ("c=d", None)], MapType(key=Field(name="key", type=VARCHAR), value=Field(name="value", type=INT32)))
    "{k=1, 'c=d'=NULL}"
    >>> fields = (Field(name="d", type=DATE), Field(name="s", type=VARCHAR))
    >>> nested_text({"d": 19737, "s": "x"}, StructType(fields=fields)), nested_text({"d": None, "s": "it's"}, StructType(fields=fields))
    ("{'d': 2024-01-15, 's': 'x'}", "{ 'd': NULL, 's': 'it\\'s'}")
    """
    text = _nested(value, data_type, quoted=isinstance(data_type, StructType))
    return text.replace("{", f"{{{MARK}", 1) if isinstance(data_type, StructType) and "\\" in text else text


def is_readable(value: object, data_type: DataType, depth: int = 0) -> bool:
    """Whether DuckDB's parser reads the text of a nested value: otherwise the row belongs into a file.

    It ends a value in two containers at the first closing bracket, even in quotes, and takes a list of JSON for JSON itself.

    >>> from ducklake_core.format.types.data_types import *
    >>> texts = ListType(element=Field(name="element", type=VARCHAR))
    >>> is_readable(["]"], texts), is_readable([["]"]], ListType(element=Field(name="element", type=texts)))
    (True, False)

    Nor does it read every variant: see :func:`~ducklake_core.format.values.variant_encoding.is_readable_variant`.
    """
    match data_type, value:
        case _, None:
            return True
        case ListType(element=element), list():
            return element.type != JSON and all(is_readable(item, element.type, depth + 1) for item in value)
        case MapType(key=key, value=item), list():
            return all(is_readable(k, key.type, depth + 1) and is_readable(v, item.type, depth + 1) for k, v in value)
        case StructType(fields=fields), dict():
            named = all(_is_plain(field.name, depth + 1) for field in fields)
            return named and all(is_readable(value[field.name], field.type, depth + 1) for field in fields)
        case PrimitiveType(name="varchar" | "json"), str():
            return _is_plain(value, depth)
        case PrimitiveType(name="blob"), bytes():
            return depth < _DEEP or _CLOSING.isdisjoint(to_cast_text(value, data_type))
        case PrimitiveType(name="variant"), dict():
            return is_readable_variant(value["metadata"], value["value"])
        case _:
            return True


def _is_plain(text: str, depth: int) -> bool:
    return not depth or ("\0" not in text and (depth < _DEEP or _CLOSING.isdisjoint(text)))


def _nested(value: object, data_type: DataType, *, quoted: bool) -> str:
    match data_type, value:
        case _, None:
            return "NULL"
        case ListType(element=element), list():
            return f"[{', '.join(_nested(item, element.type, quoted=False) for item in value)}]"
        case MapType(key=key, value=item), list():
            pairs = (f"{_nested(k, key.type, quoted=False)}={_nested(v, item.type, quoted=False)}" for k, v in value)
            return f"{{{', '.join(pairs)}}}"
        case StructType(fields=fields), dict():
            members = (f"{_quote(field.name)}: {_nested(value[field.name], field.type, quoted=quoted)}" for field in fields)
            return f"{{{', '.join(members)}}}"
        case PrimitiveType(name="variant"), dict():
            return _quote_where_needed(_variant_text(value))
        case _:
            text = to_cast_text(value, data_type)
            return _quote(text) if quoted and data_type == VARCHAR else _quote_where_needed(text)


def _variant_text(value: Mapping[str, bytes]) -> str:
    r"""The text of a blob with the bytes of a variant, closing brackets as bytes: see :func:`is_readable`.

    >>> _variant_text({"metadata": b"\x01\0\0", "value": b"\x0da]}"})
    '\\x01\\x00\\x00\\x0Da\\x5D\\x7D'
    """
    return to_cast_text(join_variant(value), BLOB).replace("]", "\\x5D").replace("}", "\\x7D")


def _quote_where_needed(text: str) -> str:
    plain = text and text.lower() != "null" and text == text.strip() and _SPECIAL.isdisjoint(text)
    return text if plain else _quote(text)


def _quote(text: str) -> str:
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))
