"""Commands that make a lake, load files into tables, export tables to files, and manage options and holds."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.json as pa_json
import typer

from ducklake_core.cli.output import flush, print_json, print_lines, print_rows, print_table, progress_bar
from ducklake_core.cli.session import (
    At,
    Author,
    Columns,
    CommandGroup,
    ExtraInfo,
    Json,
    LakeOptions,
    Message,
    TableName,
    Where,
    column_names,
    opened,
    snapshot_at,
    time_with_zone,
)
from ducklake_core.errors import AlreadyExistsError, NotFoundError, SchemaError, StorageError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files.paths import printable
from ducklake_core.format.types.schema import from_arrow_field
from ducklake_core.format.types.text import counted
from ducklake_core.lake import DuckLake

FileFormat: TypeAlias = Literal["parquet", "csv", "json", "jsonl"]
_FORMATS: dict[str, FileFormat] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip
_Format = Annotated[FileFormat | None, typer.Option("--format", help="parquet, csv, json or jsonl; by the name of the file if missing.")]


def create(
    context: typer.Context,
    *,
    address: Annotated[
        str | None, typer.Argument(metavar="[ADDRESS]", help="Address of the new catalog; that of --lake if missing.")
    ] = None,
    data_path: Annotated[str | None, typer.Option("--data-path", help="Directory or object store prefix for data files.")] = None,
    encrypted: Annotated[bool, typer.Option("--encrypted", help="Encrypt all data files; fixed for the life of the lake.")] = False,
    relative_data_path: Annotated[
        bool, typer.Option("--relative-data-path", help="Store a relative data path as it is: relative to each client's directory.")
    ] = False,
    version: Annotated[Literal["1.0", "1.1"], typer.Option("--version", help="Version of the catalog format.")] = "1.0",
    as_json: Json = False,
) -> None:
    """Create an empty lake.

    Example: ducklake create sqlite:///lake.sqlite --data-path files/
    """
    options: LakeOptions = context.find_root().obj
    with options.create(address, data_path=data_path, encrypted=encrypted, relative_data_path=relative_data_path, version=version) as lake:
        if as_json:
            print_json({"catalog": str(lake.database.address), "data_path": lake.info.data_path, "version": lake.info.version})
        else:
            print_lines([f"created {lake.database.address} with data path {lake.info.data_path}"])


def load(
    context: typer.Context,
    *,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Parquet, CSV or JSON files with the same columns.")],
    into: Annotated[str, typer.Option("--into", help="table or schema.table; created when it does not exist.")],
    mode: Annotated[Literal["append", "overwrite", "upsert"], typer.Option("--mode", help="append, overwrite or upsert.")] = "append",
    on: Annotated[str | None, typer.Option("--on", help="Key columns of an upsert, separated by commas.")] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="Rows to replace by an overwrite: a condition in SQL; all by default.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", help="Partition keys of a new table, separated by commas: 'region, day(placed_at)'.")
    ] = None,
    file_format: _Format = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    as_json: Json = False,
) -> None:
    """Load the rows of files into a table in one commit. CSV columns get the types of the table, or the types that their values have.

    Example: ducklake load orders-*.csv --into sales.orders --partition-by 'day(placed_at)'
    """
    formats = {file_format or _format_of(path) for path in files}
    if len(formats) > 1:
        raise UsageError(f"the files have different formats ({', '.join(sorted(formats))}). Load one format at a time")
    with opened(context, read_only=False) as lake:
        rows = _rows_of_files(files, formats.pop(), _stored_types(lake, into))
        with progress_bar(as_json=as_json) as progress, lake.progress(progress):
            result = lake.write(
                into,
                rows,
                mode=mode,
                where=where,
                on=() if on is None else column_names(on),
                partition_by=() if partition_by is None else keys(partition_by),
                author=author,
                message=message,
                extra_info=extra_info,
            )
        if as_json:
            print_json(result)
        else:
            print_lines([str(result)])


def export(
    context: typer.Context,
    *,
    table: TableName,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write: .parquet, .csv, .json or .jsonl.")],
    columns: Columns = None,
    where: Where = None,
    at: At = None,
    file_format: _Format = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write the rows of a table to one file. The file appears when it is complete.

    Example: ducklake export sales.orders orders.parquet --where "country = 'DE'"
    """
    form = file_format or _format_of(file)
    if os.path.exists(file) and not overwrite:
        raise AlreadyExistsError(f"the file {file} already exists. Pass --overwrite to replace it", path=file)
    with opened(context) as lake:
        scan = lake.table(table, at=snapshot_at(at)).scan(columns=None if columns is None else column_names(columns), where=where)
        reader = scan.to_reader()
        counter = _Counter(reader)
        with _complete_file(file) as output, redirect_stdout(output):
            print_rows(reader.schema, counter, form, None)
            flush()
        size = os.path.getsize(file)
    if as_json:
        print_json({"file": file, "rows": counter.rows, "bytes": size})
    else:
        print_lines([f"exported {counted(counter.rows, 'row')} to {file}"])


class _Counter:
    """Batches of rows, which are counted as they are read."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


@contextmanager
def _complete_file(path: str) -> Iterator[io.TextIOWrapper]:
    """Yield a temporary file next to a path, which becomes the file unless writing fails."""
    try:
        with NamedTemporaryFile(dir=os.path.dirname(path) or ".", prefix=f".{os.path.basename(path)}.", delete=False) as binary:
            temporary = binary.name
            try:
                with io.TextIOWrapper(binary, encoding="utf-8", newline="") as output:
                    yield output
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
    except OSError as error:
        raise StorageError(f"cannot write the file {path}: {error.strerror or error}", path=path) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def keys(text: str) -> list[str]:
    """Return partition keys that are separated by commas outside of parentheses and quotes.

    >>> keys("region, bucket(16, id)"), keys('"a,b"')
    (['region', 'bucket(16, id)'], ['"a,b"'])
    """
    found, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == '"'
        depth += 0 if is_quoted else (letter == "(") - (letter == ")")
        if letter == "," and depth == 0 and not is_quoted:
            found.append("")
        else:
            found[-1] += letter
    return [one.strip() for one in found]


def _format_of(path: str) -> FileFormat:
    found = _FORMATS.get(Path(path).suffix.lower())
    if found is None:
        raise UsageError(f"the extension of {path} does not determine its format. Set --format {', '.join(get_args(FileFormat))}")
    return found


def _stored_types(lake: DuckLake, table: str) -> dict[str, pa.DataType]:
    """Return the Arrow types of the columns of a table; empty when the table does not exist."""
    if not lake.has_table(table):
        return {}
    # Arrow's readers of files know no types of extensions; a write reads their strings.
    fields = lake.table(table).schema.to_arrow()
    return {field.name: pa.string() if isinstance(field.type, pa.BaseExtensionType) else field.type for field in fields}


def _rows_of_files(paths: Sequence[str], form: FileFormat, types: dict[str, pa.DataType]) -> pa.RecordBatchReader | pa.Table:
    for path in paths:
        if "://" in path:
            raise UnsupportedFeatureError(f"cannot load {printable(path)}: only local files are supported. Download the file first")
        if not os.path.isfile(path):
            raise NotFoundError(f"there is no file {path}", path=path)
    try:
        if form == "parquet":
            parts = [pa_dataset.dataset(path, format="parquet") for path in paths]
            schema = pa.unify_schemas([part.schema for part in parts])
            return pa_dataset.dataset([part.replace_schema(schema) for part in parts]).scanner().to_reader()
        read = {"csv": _csv, "json": _json, "jsonl": _json_lines}[form]
        return _in_microseconds(pa.concat_tables([read(path, types) for path in paths], promote_options="default"), types)
    except (pa.ArrowException, ValueError, TypeError) as error:
        if isinstance(error, SchemaError):
            raise
        # Arrow's errors about one file do not name it.
        where = paths[0] if len(paths) == 1 else f"{paths[0]} and {counted(len(paths) - 1, 'further file')}"
        raise SchemaError(f"cannot read {where} as {form}: {_reason(error)}", path=paths[0]) from error
    except OSError as error:
        raise StorageError(f"cannot read {paths[0]}: {error.strerror or error}", path=paths[0]) from error


_JSON_CHANGE = re.compile(r"JSON parse error: Column\(/?(.*)\) changed from (\w+) to (\w+) in row (\d+)")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    if found := _JSON_CHANGE.match(text):
        where = f"row {int(found[4]) + 1:,}" + (f", column {found[1].replace('/', '.')!r}" if found[1] else "")
        return f"{where}: {found[3]} instead of {found[2]}"
    if "duplicate field names" in text:
        return "it has several columns of one name"
    if "Is this a 'parquet' file?" in text:
        return "it is not a Parquet file, or it was cut"
    return text.removeprefix("JSON parse error: ")


def _in_microseconds(rows: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    """Return rows with inferred times in microseconds, the unit of DuckDB's types: Arrow infers seconds from values without fractions."""
    fields = []
    for field in rows.schema:
        if field.name in types:
            fields.append(field)
        elif pa.types.is_timestamp(field.type):
            fields.append(field.with_type(pa.timestamp("us", field.type.tz)))
        else:
            fields.append(field.with_type(pa.time64("us")) if pa.types.is_time(field.type) else field)
    return rows.cast(pa.schema(fields))


def _csv(path: str, types: dict[str, pa.DataType]) -> pa.Table:
    """Read CSV as DuckDB does: an empty field is NULL, and a quoted empty string is an empty string."""
    flat = {name: kind for name, kind in types.items() if not pa.types.is_nested(kind)}
    convert = pa_csv.ConvertOptions(column_types=flat, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    with suppress(pa.ArrowInvalid):
        return pa_csv.read_csv(path, convert_options=convert, parse_options=parse)
    try:
        # Only a read without threads counts the rows.
        return pa_csv.read_csv(path, pa_csv.ReadOptions(use_threads=False), parse, convert)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"cannot read {path} as csv: {_csv_failure(path, types, str(error))}", path=path) from error


_CSV_CELL = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?(.*)", re.DOTALL)
_CSV_VALUE = re.compile(r"CSV conversion error to .*?: invalid value '(.*)'|The string '(.*)' is not a valid decimal", re.DOTALL)


def _csv_failure(path: str, types: dict[str, pa.DataType], text: str) -> str:
    """Return why Arrow cannot read a CSV file, with the line and the name of the column."""
    found = _CSV_CELL.match(text)
    if found is None:
        return (
            "it is empty" if text == "Empty CSV file" else " ".join(text.removeprefix("CSV parse error: ").replace("Row #", "row ").split())
        )
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        name = next(csv.reader(file))[int(found[1])]
    where = f"column {name!r}" if found[2] is None else f"row {found[2]}, column {name!r}"
    wanted = f"type {from_arrow_field(pa.field(name, types[name])).type}" if name in types else "the type of the values before it"
    if value := _CSV_VALUE.match(found[3]):
        return f"{where}: {value[1] or value[2] or ''!r} is not a value of {wanted}"
    if "Rescaling Decimal" in found[3]:
        return f"{where}: a number has more digits after the point than {wanted}"
    return f"{where}: {' '.join(found[3].split())}"


def _json_lines(path: str, types: dict[str, pa.DataType]) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=pa.schema(list(types.items())) if types else None, newlines_in_values=True)
    return pa_json.read_json(path, parse_options=options)


def _json(path: str, types: dict[str, pa.DataType]) -> pa.Table:
    """Read one array of objects, or objects one after another."""
    text = Path(path).read_text(encoding="utf-8")
    if not text.lstrip().startswith("["):
        return _json_lines(path, types)
    # Arrow reads objects, not arrays of them.
    lines = "\n".join(json.dumps(row) for row in json.loads(text))
    options = pa_json.ParseOptions(explicit_schema=pa.schema(list(types.items())) if types else None, newlines_in_values=True)
    return pa_json.read_json(io.BytesIO(lines.encode()), parse_options=options)


_Table = Annotated[str | None, typer.Option("--table", help="Table that the option is for; the lake by default.")]
_Schema = Annotated[str | None, typer.Option("--schema", help="Schema that the option is for; the lake by default.")]

option = typer.Typer(
    name="option", cls=CommandGroup, help="List, set and unset options of the lake, a schema or a table.", rich_markup_mode=None
)
hold = typer.Typer(
    name="hold", cls=CommandGroup, help="List, add and remove holds, which keep snapshots from expiring.", rich_markup_mode=None
)


@option.command("list")
def list_options(context: typer.Context, *, as_json: Json = False) -> None:
    """List the options that are set, with the lake, schema or table that each is for.

    Example: ducklake option list
    """
    with opened(context) as lake:
        found = lake.scoped_options()
        if as_json:
            print_json(found)
        else:
            print_table(("option", "value", "scope", "of"), [(one.name, one.value, one.scope, one.entry) for one in found])


@option.command("set")
def set_option(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the option.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value.")],
    table: _Table = None,
    schema: _Schema = None,
    as_json: Json = False,
) -> None:
    """Set an option. Makes no snapshot.

    Example: ducklake option set expire_older_than '30 days'
    """
    with opened(context, read_only=False) as lake:
        lake.set_option(name, value, table=table, schema=schema)
        if as_json:
            print_json({"name": name, "value": value, "table": table, "schema": schema})
        else:
            print_lines([f"set {name} = {value} for {_scope(table, schema)}"])


@option.command("unset")
def unset_option(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the option.")],
    table: _Table = None,
    schema: _Schema = None,
    as_json: Json = False,
) -> None:
    """Unset an option, so that the option of the wider scope or the default is effective again. Makes no snapshot.

    Example: ducklake option unset expire_older_than
    """
    with opened(context, read_only=False) as lake:
        was_set = lake.unset_option(name, table=table, schema=schema)
        if as_json:
            print_json({"name": name, "was_set": was_set, "table": table, "schema": schema})
        else:
            print_lines([f"unset {name} for {_scope(table, schema)}" if was_set else f"{name} was not set for {_scope(table, schema)}"])


def _scope(table: str | None, schema: str | None) -> str:
    return "the lake" if table is None and schema is None else f"table {table}" if schema is None else f"schema {schema}"


@hold.command("list")
def list_holds(context: typer.Context, *, as_json: Json = False) -> None:
    """List holds by name, including those that have ended.

    Example: ducklake hold list
    """
    with opened(context) as lake:
        found = lake.holds.list()
        if as_json:
            print_json(found)
        else:
            rows = [(one.name, one.snapshot_id, one.until, "ended" if one.has_ended else "") for one in found]
            print_table(("hold", "snapshot", "until (UTC)", "state"), rows)


@hold.command("add")
def add_hold(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the hold.")],
    at: Annotated[str | None, typer.Option("--at", help="Snapshot: its id, a time with a zone, or a hold. The newest by default.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Time with a zone at which the hold ends; never by default.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Move a hold of that name to this snapshot.")] = False,
    as_json: Json = False,
) -> None:
    """Keep a snapshot from expiring. DuckDB's ducklake_expire_snapshots ignores holds.

    Example: ducklake hold add audit-2026 --at 42
    """
    with opened(context, read_only=False) as lake:
        end = None if until is None else time_with_zone(until, "a time")
        made = lake.holds.add(name, snapshot_at(at), until=end, replace=replace)
        if as_json:
            print_json(made)
        else:
            print_lines([f"{made.name} holds snapshot {made.snapshot_id}" + (f" until {made.until}" if made.until else "")])


@hold.command("remove")
def remove_hold(
    context: typer.Context, *, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the hold.")], as_json: Json = False
) -> None:
    """Remove a hold; its snapshot may expire from then on.

    Example: ducklake hold remove audit-2026
    """
    with opened(context, read_only=False) as lake:
        lake.holds.remove(name)
        if as_json:
            print_json({"name": name})
        else:
            print_lines([f"removed the hold {name}"])
