"""Make types of YAML attributes that have a JSON schema of their own, by which ``dg check yaml`` names the wrong field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import core_schema


class _WithoutStr(type):
    """Metaclass of the types of YAML attributes that have a JSON schema of their own.

    Dagster adds ``| str`` to the type of each attribute for templates. ``dg check yaml`` then only reports that an attribute has none of
    two types, not which of its fields is wrong. These types accept strings themselves.
    """

    def __or__(cls, _other: object) -> _WithoutStr:
        return cls


def yaml_type(name: str, schema: Mapping[str, Any]) -> Any:
    """Return the type of an attribute that has a JSON schema of its own.

    Args:
        name: Name of the type.
        schema: JSON schema, which includes strings: a template or an address.
    """
    methods = {
        "__get_pydantic_core_schema__": classmethod(lambda *_: core_schema.any_schema()),
        "__get_pydantic_json_schema__": classmethod(lambda *_: schema),
    }
    return _WithoutStr(name, (), methods)


def yaml_schema(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the JSON schema of a mapping with a kind, or of a string.

    Args:
        fields: JSON schemas of the fields by kind.
    """
    rules = [
        {
            "if": {"type": "object", "required": ["kind"], "properties": {"kind": {"const": kind}}},
            "then": {
                "properties": {name: {"description": field.get("description", "")} for name, field in schema["properties"].items()},
                "required": schema.get("required", []),
                "additionalProperties": False,
            },
        }
        for kind, schema in fields.items()
    ]
    # The kind may be a template. The pattern is part of the message, so it lists the kinds.
    kind = {"type": "string", "pattern": rf"^({'|'.join(fields)})$|\{{\{{"}
    of_mapping = {"if": {"type": "object"}, "then": {"properties": {"kind": kind}, "required": ["kind"]}}
    return {"type": ["object", "string"], "allOf": [of_mapping, *rules]}
