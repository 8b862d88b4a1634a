"""The schemas that an open transaction sees: those of its base snapshot, without what it drops and with what it creates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ducklake_core.commit.actions import Action
from ducklake_core.commit.definition_actions import CreateSchema, DropSchema, TagSchema
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.state import SchemaState, Snapshot
from ducklake_core.format.types.message_text import similar_in_brackets
from ducklake_core.format.types.names import dotted, folded, parent_schema, schemas_meant
from ducklake_core.staging.new_objects import new_schema

if TYPE_CHECKING:
    from ducklake_core.staging.context import LakeContext


class StagedSchemas:
    """Schemas by their paths.

    Args:
        lake: Whose catalog.
        base: The snapshot that the transaction is planned on.

    Attributes:
        definitions: Staged changes of definitions that belong to no staged table, in the order they were asked for.
    """

    def __init__(self, lake: LakeContext, base: Snapshot) -> None:
        self.base = base
        self.definitions: list[Action] = []
        self._lake = lake
        self._schemas: dict[str, SchemaState] = {}
        self._last_local_id = 0

    def find_schema(self, path: str) -> SchemaState | None:
        """The schema with a path, None when there is none."""
        if folded(path) in self._schemas:
            return self._schemas[folded(path)]
        return next((state for state in self._committed() if folded(state.name) == folded(path)), None)

    def schema(self, path: str) -> SchemaState:
        """The schema with a path.

        Raises:
            NotFoundError: It does not exist.
        """
        state = self.find_schema(path)
        if state is None:
            with self._lake.reader() as reader:
                near = similar_in_brackets(path, [other.name for other in (*reader.schemas(self.base.id), *self._schemas.values())])
            raise NotFoundError(f"there is no schema {path!r} at snapshot {self.base.id}{near}", schema=path)
        return state

    def schema_called(self, text: str, *, if_exists: bool = False) -> SchemaState | None:
        """The schema that an argument names: by its path, or else one at the top whose name is the whole text.

        Raises:
            NotFoundError: It does not exist, and ``if_exists`` is not set.
        """
        path, whole = schemas_meant(text)
        found = self.find_schema(path) or self.find_schema(whole)
        return found if found is not None or if_exists else self.schema(path)

    def schemas_within(self, state: SchemaState) -> list[SchemaState]:
        """The schemas directly in a schema."""
        known = {folded(one.name): one for one in (*self._committed(), *self._schemas.values())}
        return [one for one in known.values() if folded(parent_schema(one.name) or "") == folded(state.name)]

    def create_schema(self, path: str, *, or_existing: bool = False, with_parents: bool = False) -> SchemaState:
        """Stage a new schema.

        Args:
            path: Its path.
            or_existing: Whether one that another writer makes meanwhile will do.
            with_parents: Whether to make the schemas around it too where they are missing.

        Raises:
            NotFoundError: The schema that it is to be in does not exist.
            UnsupportedFeatureError: It is to be in one, and the lake's version has no such schemas.
        """
        if not path or path == '""':
            raise UsageError("a schema needs a name")
        around, version = parent_schema(path), self._lake.info.format_version
        if around is not None and not version.has_parent_schemas:
            raise UnsupportedFeatureError(
                f"schema {path} would be in schema {around}: lakes of version {version} have no schemas in schemas. Migrate the lake to "
                f"version 1.1, or write {dotted((path,))} for one schema whose name has dots",
                feature="nested schemas",
                schema=path,
            )
        parent = None if around is None else self.find_schema(around)
        if around is not None and parent is None:
            parent = self.create_schema(around, or_existing=or_existing, with_parents=True) if with_parents else self.schema(around)
        action, state = new_schema(path, parent, self._local_id(), self._lake.info, or_existing=or_existing)
        self.definitions.append(action)
        self._schemas[folded(path)] = state
        return state

    def tag_schema(self, state: SchemaState, key: str, value: str | None) -> None:
        """Stage another tag of a schema; the last one of a key counts."""

        def is_earlier(action: Action) -> bool:
            return isinstance(action, TagSchema) and (action.schema_id, action.key) == (state.id, key)

        self.definitions = [action for action in self.definitions if not is_earlier(action)]
        stored = state.comment if key == "comment" else state.tags.get(key)
        # The same again is no change, as it is none of a table.
        if value != stored:
            self.definitions.append(TagSchema(schema_id=state.id, name=state.name, key=key, value=value))

    def _forget_schema(self, state: SchemaState) -> None:
        """Stage the end of a schema in which nothing is left."""
        if state.id >= 0:
            self.definitions.append(DropSchema(schema_id=state.id, name=state.name))
        else:
            self.definitions = [one for one in self.definitions if not (isinstance(one, CreateSchema) and one.schema_id == state.id)]
        self._schemas.pop(folded(state.name), None)

    def _committed(self) -> Iterator[SchemaState]:
        dropped = {action.schema_id for action in self.definitions if isinstance(action, DropSchema)}
        with self._lake.reader() as reader:
            yield from [state for state in reader.schemas(self.base.id) if state.id not in dropped]

    def _local_id(self) -> int:
        self._last_local_id -= 1
        return self._last_local_id
