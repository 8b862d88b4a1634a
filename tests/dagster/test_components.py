"""Components: a lake, its tables and its maintenance in YAML, as `dg` loads them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster.components.core.component_tree import ComponentTree
from dagster.components.testing import create_defs_folder_sandbox
from jsonschema import Draft202012Validator
from pydantic import Field, TypeAdapter

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_dagster import (
    DuckLakeComponent,
    DuckLakeIOManager,
    DuckLakeMaintenanceComponent,
    DuckLakeResource,
    DuckLakeTablesComponent,
    LocalStorage,
)
from ducklake_dagster.components.lake import CATALOGS, LakeScaffoldParams
from ducklake_dagster.config.catalogs import PlainCatalog
from ducklake_dagster.maintenance.steps import MaintenanceVerb

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),
    # Dagster's own use of pydantic.
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
]


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    made = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    with made.transaction() as tx:
        tx.create_schema("raw")
        tx.write("raw.events", pa.table({"n": [1]}), comment="what happened")
    made.create_view("raw.many", "SELECT n FROM raw.events WHERE n > 1")
    return made


@pytest.fixture
def project(tmp_path: Path, lake: DuckLake) -> Iterator[Any]:
    """A project whose folder `lake` holds the lake."""
    with create_defs_folder_sandbox() as sandbox:
        write(sandbox.defs_folder_path / "lake", lake_yaml(tmp_path))
        yield sandbox


def lake_yaml(home: Path, **more: Any) -> dict[str, Any]:
    attributes = {
        "catalog": {"kind": "sqlite", "path": f"{home}/lake.sqlite"},
        "storage": {"kind": "local", "data_path": f"{home}/files/"},
        "io_manager": {"default_frame": "arrow", "table_schema": "raw"},
        **more,
    }
    return {"type": "ducklake_dagster.DuckLakeComponent", "attributes": attributes}


def write(folder: Path, *documents: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "defs.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))


@contextmanager
def raises(message: str) -> Iterator[list[BaseException]]:
    """Expect an error with a cause of this message, and return that cause."""
    errors: list[BaseException] = []
    try:
        yield errors
    except Exception as error:  # noqa: BLE001 - Dagster wraps what a component raises
        found: BaseException | None = error
        while found is not None:
            errors.append(found)
            found = found.__cause__ or found.__context__
    assert any(re.search(message, str(error), re.DOTALL) for error in errors), errors


def test_a_lake(project: Any) -> None:
    with project.load_component_and_build_defs(defs_path="lake") as (component, defs):
        assert isinstance(component, DuckLakeComponent)
        assert isinstance(defs.resources["lake"], DuckLakeResource)
        manager = defs.resources["io_manager"]
        assert isinstance(manager, DuckLakeIOManager)
        assert manager.schema_ == "raw"

        @dg.asset
        def made(events: pa.Table) -> pa.Table:
            return events

        events = dg.AssetSpec("events")
        assert dg.materialize([events, made], resources=defs.resources).success
        assert component.resource().connect().table("raw.made").scan().count() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"catalog": {"kind": "postgres", "password": "hunter2"}}, "catalog of a DuckLakeComponent .*Catalog: database is required"),
        ({"catalog": {"kind": "oracle"}}, "catalog of a DuckLakeComponent is invalid"),
        (
            {"storage": {"kind": "s3", "bucket": "x", "secret_access_key": "hunter2"}},
            "storage of a DuckLakeComponent .*S3Storage has no field bucket",
        ),
        ({"catalog": "oracle://root:hunter2@db/lake"}, "address of the catalog is not supported"),
        (
            {"storage": {"kind": "local", "data_path": "/lakes/{{ env.NOT_SET }}/"}},
            "environment variable NOT_SET in .* is not set",
        ),
        ({"catalog": {"kind": "{{ env.NOT_SET }}"}}, "NOT_SET in the catalog of a DuckLakeComponent is not set"),
        ({"storage": "{{ env.NOT_SET }}"}, "NOT_SET in the storage of a DuckLakeComponent is not set"),
        ({"storage": {"kind": "local", "data_path": "s3://b/"}}, "data_path of LocalStorage must be a directory or file://, not s3://"),
        ({"resource_key": "lake", "io_manager": {"key": "lake"}}, "both have the resource key lake"),
        ({"resource_key": ""}, "resource_key must be a name of letters, digits and _, not ''"),
        ({"io_manager": {"key": "my io"}}, "key of the io_manager must be a name of letters, digits and _, not 'my io'"),
    ],
)
def test_a_lake_that_cannot_be(project: Any, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    write(project.defs_folder_path / "lake", lake_yaml(tmp_path, **change))
    with raises(message) as errors, project.load_component_and_build_defs(defs_path="lake"):
        pass
    # The rest of Dagster's message repeats the file.
    (own,) = (error for error in errors if isinstance(error, UsageError))
    assert "hunter2" not in str(own)


def test_a_setting_that_is_not_there(project: Any, tmp_path: Path) -> None:
    write(project.defs_folder_path / "lake", lake_yaml(tmp_path, create_when_missing=True))
    with raises("create_when_missing"), project.load_component_and_build_defs(defs_path="lake"):
        pass


def test_variables_are_required_only_when_a_run_starts(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "raw")
    settings = {"branch": "{{ env.NOT_SET }}", "table_schema": "{{ env.THERE }}"}
    catalog = {"kind": "postgres", "database": "lake", "user": '{{ env("NOT_SET", "etl") }}', "password": "{{ env.NOT_SET }}"}
    write(project.defs_folder_path / "lake", lake_yaml(tmp_path, catalog=catalog, io_manager=settings))
    with project.load_component_and_build_defs(defs_path="lake") as (component, defs):
        manager = defs.resources["io_manager"]
        assert (manager.schema_, type(manager.branch)) == ("raw", dg.EnvVar)
        assert (component.catalog.user, type(component.catalog.password)) == ("etl", dg.EnvVar)
        with pytest.raises(dg.DagsterInvalidConfigError, match='"NOT_SET" which is not set'):
            component.resource().process_config_and_initialize()
    write(project.defs_folder_path / "lake", lake_yaml(tmp_path, catalog="{{ env.NOT_SET }}"))
    with project.load_component_and_build_defs(defs_path="lake") as (component, _):
        with pytest.raises(dg.DagsterInvalidConfigError, match='"NOT_SET" which is not set'):
            component.resource().process_config_and_initialize()
        monkeypatch.setenv("NOT_SET", f"sqlite:///{tmp_path}/lake.sqlite")
        assert component.resource().process_config_and_initialize().connect().has_table("raw.events")


def test_variables_with_something_in_their_place(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    settings = {"branch": "{{ env.NOT_SET or 'dev' }}", "table_schema": "{{ 'raw' if env.NOT_SET else env('NOT_SET', 'main') }}"}
    storage = {"kind": "local", "data_path": f"{{{{ env.NOT_SET | default('{tmp_path}/files/', true) }}}}"}
    write(project.defs_folder_path / "lake", lake_yaml(tmp_path, storage=storage, io_manager=settings))
    with project.load_component_and_build_defs(defs_path="lake") as (component, defs):
        assert component.storage.data_path == f"{tmp_path}/files/"
        assert (defs.resources["io_manager"].branch, defs.resources["io_manager"].schema_) == ("dev", "main")


def test_a_port_may_come_from_a_variable(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    catalog = {
        "kind": "postgres",
        "host": "h",
        "database": "lake",
        "port": "{{ env.NOT_SET }}",
        "options": {"sslmode": "{{ env.NOT_SET }}"},
    }
    write(project.defs_folder_path / "lake", lake_yaml(tmp_path, catalog=catalog))
    with project.load_component_and_build_defs(defs_path="lake") as (component, _):
        monkeypatch.setenv("NOT_SET", "6000")
        found = component.resource().process_config_and_initialize().catalog
        assert (found.port, found.options) == (6000, {"sslmode": "6000"})


def test_a_lake_in_a_folder_that_is_not_there(project: Any) -> None:
    for kind in ("Tables", "Maintenance"):
        write(project.defs_folder_path / "wrong", {"type": f"ducklake_dagster.DuckLake{kind}Component", "attributes": {"lake": "lak"}})
        with raises("folder lak does not exist below .* Set lake to the folder"), project.load_component_and_build_defs("wrong"):
            pass


def test_tables(project: Any, lake: DuckLake) -> None:
    attributes: dict[str, Any] = {
        "lake": "lake",
        "include": ["raw.*"],
        "translation": {"group_name": "raw", "key": "lake/{{ table.name }}"},
        "commit_sensor": {"name": "commits", "request_runs": "group:later"},
    }
    write(project.defs_folder_path / "tables", {"type": "ducklake_dagster.DuckLakeTablesComponent", "attributes": attributes})
    with project.load_component_and_build_defs(defs_path="tables") as (component, defs):
        assert not list(defs.resolve_all_asset_specs())
        asyncio.run(component.refresh_state(project.project_root))
    with project.load_component_and_build_defs(defs_path="tables") as (component, defs):
        assert isinstance(component, DuckLakeTablesComponent)
        specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
        assert set(specs) == {"lake/events", "lake/many"}
        assert specs["lake/events"].description == "what happened"
        assert {spec.group_name for spec in specs.values()} == {"raw"}
        assert specs["lake/many"].is_virtual
        assert [dep.asset_key.to_user_string() for dep in specs["lake/many"].deps] == ["lake/events"]
        (sensor,) = defs.sensors
        assert sensor.name == "commits"
        assert sensor.required_resource_keys == {"lake"}
        assert sensor.default_status == dg.DefaultSensorStatus.STOPPED


def test_the_state_holds_the_tables_of_the_catalog(project: Any, lake: DuckLake, tmp_path: Path) -> None:
    component = DuckLakeTablesComponent(lake="lake")
    component._lake = DuckLakeComponent.from_attributes_dict(attributes=lake_yaml(tmp_path)["attributes"])
    state = tmp_path / "state"
    component.write_state_to_path(state)
    lake.drop_table("raw.events")
    context = ComponentTree.for_test().load_context
    known = component.build_defs_from_state(context, state).resolve_all_asset_specs()
    assert {spec.key.to_user_string() for spec in known} == {"raw/events", "raw/many"}
    # Before the first refresh there is nothing, and no error.
    assert not component.build_defs_from_state(context, None).assets
    state.write_text('{"version": 99}')
    with pytest.raises(UsageError, match="refresh-defs-state"):
        component.build_defs_from_state(context, state)


def test_the_schema_of_the_yaml_has_the_fields_of_each_kind() -> None:
    validator = Draft202012Validator(DuckLakeComponent.get_model_cls().model_json_schema())

    def faults(**attributes: Any) -> list[str]:
        given = {"catalog": {"kind": "sqlite", "path": "x"}, "storage": {"kind": "local"}, **attributes}
        return [fault.message for fault in validator.iter_errors(given)]

    assert faults() == faults(catalog="sqlite:///x") == faults(storage="{{ env.STORAGE }}") == []
    assert faults(catalog={"kind": "postgres", "database": "d", "port": "{{ env.PORT }}", "host": "h", "user": "u"}) == []
    assert faults(catalog={"kind": "sqlite", "path": "x", "port": 1}) == ["Additional properties are not allowed ('port' was unexpected)"]
    assert faults(catalog={"kind": "sqlite"}) == ["'path' is a required property"]
    assert faults(storage={"kind": "s4"}) == [r"'s4' does not match '^(local|s3|gcs|azure)$|\\{\\{'"]
    assert faults(storage={"data_path": "x"}) == ["'kind' is a required property"]


def test_definitions_load_without_the_catalog(project: Any, lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``dg check defs``, which refreshes the state before."""
    monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
    write(project.defs_folder_path / "raw", {"type": "ducklake_dagster.DuckLakeTablesComponent", "attributes": {"lake": "lake"}})

    def keys() -> set[str]:
        with project.load_component_and_build_defs(defs_path="raw") as (_, defs):
            return {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}

    assert keys() == {"raw/events", "raw/many"}
    lake.close()
    (tmp_path / "lake.sqlite").rename(tmp_path / "away.sqlite")
    assert keys() == {"raw/events", "raw/many"}


def test_maintenance(project: Any) -> None:
    attributes = {"lake": "lake", "keep_last": 5, "cron_schedule": "15 2 * * *", "triggers": {"small_files": 3}, "limits": {"max_files": 9}}
    write(project.defs_folder_path / "care", {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": attributes})
    with project.load_component_and_build_defs(defs_path="care") as (component, defs):
        assert isinstance(component, DuckLakeMaintenanceComponent)
        assert [job.name for job in defs.jobs] == ["ducklake_maintenance"]
        (schedule,), (sensor,) = defs.schedules, defs.sensors
        assert (schedule.cron_schedule, schedule.default_status) == ("15 2 * * *", dg.DefaultScheduleStatus.STOPPED)
        assert (sensor.name, sensor.default_status) == ("ducklake_maintenance_sensor", dg.DefaultSensorStatus.STOPPED)
        ops = dg.Definitions(jobs=defs.jobs, resources={"lake": None}).resolve_job_def("ducklake_maintenance").run_config["ops"]
        assert list(ops) == list(get_args(MaintenanceVerb))
        assert ops["merge_adjacent_files"]["config"]["max_files"] == 9
        assert ops["expire_snapshots"]["config"]["keep_last"] == 5
    few = {"lake": "lake", "steps": ["expire_snapshots"], "cron_schedule": ""}
    write(project.defs_folder_path / "care", {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": few})
    with project.load_component_and_build_defs(defs_path="care") as (component, defs):
        assert (len(defs.jobs), not defs.schedules, not defs.sensors) == (1, True, True)
    for attributes, text in (
        ({"steps": ["vacuum"]}, "vacuum"),
        ({"keep_last": 0}, "keep_last"),
        ({"triggers": {}}, "at least one of"),
        ({"name": ""}, "name"),
    ):
        document = {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": {"lake": "lake", **attributes}}
        write(project.defs_folder_path / "care", document)
        with raises(text), project.load_component_and_build_defs(defs_path="care"):
            pass
    write(project.defs_folder_path / "wrong", {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": {"lake": "care"}})
    with raises("Set lake to the folder of a DuckLakeComponent"), project.load_component_and_build_defs(defs_path="wrong"):
        pass


def test_maintenance_is_observed_by_assets(project: Any, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    attributes = {"lake": "lake", "steps": ["expire_snapshots"], "assets": ["events"]}
    write(project.defs_folder_path / "care", {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": attributes})
    with project.load_component_and_build_defs(defs_path="care") as (_, defs):
        resource = DuckLakeResource(catalog=f"sqlite:///{tmp_path}/lake.sqlite", storage=LocalStorage())
        job = dg.Definitions(jobs=defs.jobs, resources={"lake": resource}).resolve_job_def("ducklake_maintenance")
        result = job.execute_in_process(instance=instance)
    found = [event.event_specific_data.asset_observation for event in result.all_events if event.event_type_value == "ASSET_OBSERVATION"]
    assert [one.asset_key.to_user_string() for one in found] == ["events"]


CHECKS = [{"kind": "Freshness", "max_age": "26 hours", "severity": "ERROR"}, {"kind": "UniqueKey", "key": ["n"]}]


def test_checks_and_the_sensor_that_evaluates_them(project: Any, lake: DuckLake) -> None:
    own = {"lake": "lake", "include": ["raw.events"], "checks": CHECKS, "check_sensor": {"name": "raw_checks"}}
    write(project.defs_folder_path / "raw", {"type": "ducklake_dagster.DuckLakeTablesComponent", "attributes": own})
    with project.load_component_and_build_defs(defs_path="raw") as (component, _):
        asyncio.run(component.refresh_state(project.project_root))
    with project.load_component_and_build_defs(defs_path="raw") as (_, found):
        defs = found
    keys = {(key.asset_key.to_user_string(), key.name) for built in defs.asset_checks for key in built.check_keys}
    assert keys == {("raw/events", "freshness"), ("raw/events", "unique_key")}
    assert [sensor.name for sensor in defs.sensors] == ["raw_checks"]
    care = {"lake": "lake", "assets": ["events"], "checks": CHECKS, "cron_schedule": ""}
    write(project.defs_folder_path / "care", {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": care})
    with project.load_component_and_build_defs(defs_path="care") as (_, defs):
        assert [sensor.name for sensor in defs.sensors] == ["ducklake_maintenance_checks"]
        assert len(defs.asset_checks) == 1


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ([{"kind": "Fresh"}], "must be one of ColumnBounds, "),
        ([{"kind": ["Freshness"]}], "must be one of ColumnBounds, "),
        ([{"kind": "Freshness", "age": "1 day"}], "Freshness has no field age. Its fields are name, severity, blocking, max_age"),
        ([{"kind": "Freshness"}], "Freshness needs max_age"),
        ([{"kind": "SmallFiles", "severity": "BAD"}], "severity must be WARN or ERROR"),
        ("{{ env.NO_CHECKS or 'none' }}", "checks must be a list"),
    ],
)
def test_invalid_checks_raise(project: Any, checks: object, message: str) -> None:
    attributes = {"lake": "lake", "assets": ["events"], "checks": checks}
    write(project.defs_folder_path / "care", {"type": "ducklake_dagster.DuckLakeMaintenanceComponent", "attributes": attributes})
    with raises(message), project.load_component_and_build_defs(defs_path="care"):
        pass


def test_the_schema_of_the_yaml_has_the_fields_of_each_check() -> None:
    validator = Draft202012Validator(DuckLakeMaintenanceComponent.get_model_cls().model_json_schema())

    def faults(*checks: Any) -> list[str]:
        return [fault.message for fault in validator.iter_errors({"lake": "lake", "checks": [*checks]})]

    assert faults(*CHECKS) == []
    assert faults({"kind": "Freshness", "max_age": "1 day", "age": 1}) == ["Additional properties are not allowed ('age' was unexpected)"]
    assert faults({"kind": "Freshness"}) == ["'max_age' is a required property"]
    (unknown,) = faults({"kind": "Fresh"})
    assert unknown.startswith("'Fresh' does not match '^(ColumnBounds|")


def dg_command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{home / 'src'}", "DAGSTER_DISABLE_TELEMETRY": "1", "DG_CLI_TEST_MODE": "1"}
    return subprocess.run([str(BIN / "dg"), *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def dg_project(tmp_path: Path) -> Path:
    home = tmp_path / "project"
    (home / "src" / "shop" / "defs").mkdir(parents=True)
    (home / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "0"\n[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n'
        'python_environment = "active"\n'
    )
    (home / "src" / "shop" / "__init__.py").touch()
    (home / "src" / "shop" / "definitions.py").write_text(
        "from pathlib import Path\nfrom dagster import definitions, load_from_defs_folder\n\n@definitions\ndef defs():\n"
        "    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    return home


def test_every_catalog_can_be_scaffolded() -> None:
    kinds = {kind.model_fields["kind"].default for kind in get_args(PlainCatalog)}
    assert set(get_args(LakeScaffoldParams.model_fields["catalog"].annotation)) == set(CATALOGS) == kinds
    understood: TypeAdapter[Any] = TypeAdapter(Annotated[PlainCatalog, Field(discriminator="kind")])
    for attributes in CATALOGS.values():
        assert set(attributes) <= set(type(understood.validate_python(attributes)).model_fields)


@pytest.mark.slow
def test_scaffolded_components_pass_dg_check(dg_project: Path) -> None:
    for kind, folder, *options in (
        ("DuckLakeComponent", "lake", "--catalog", "sqlite", "--data-path", "lake_files/"),
        ("DuckLakeTablesComponent", "tables", "--lake", "lake"),
        ("DuckLakeMaintenanceComponent", "care", "--lake", "lake"),
    ):
        made = dg_command(dg_project, "scaffold", "defs", f"ducklake_dagster.{kind}", folder, *options)
        assert made.returncode == 0, made.stdout + made.stderr
    for check in (("check", "yaml"), ("check", "defs")):
        found = dg_command(dg_project, *check)
        assert found.returncode == 0, found.stdout + found.stderr
    listed = dg_command(dg_project, "list", "defs", "--json")
    assert "ducklake_maintenance" in listed.stdout, listed.stdout + listed.stderr
    lake = dg_project / "src" / "shop" / "defs" / "lake" / "defs.yaml"
    for right, wrong, message in (
        ("create_if_missing", "create_when_missing", "'create_when_missing' was unexpected"),
        ("path:", "pth:", "catalog.pth Additional properties are not allowed ('pth' was unexpected)"),
    ):
        lake.write_text(lake.read_text().replace(right, wrong, 1))
        found = dg_command(dg_project, "check", "yaml")
        assert found.returncode != 0
        assert message in found.stdout + found.stderr
        lake.write_text(lake.read_text().replace(wrong, right, 1))


def test_the_registry_imports_without_what_is_optional() -> None:
    """An entry point that cannot be imported stops every `dg` command of its environment."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["dagster_dg_cli.registry_modules"]
    assert entries == {"ducklake_dagster": "ducklake_dagster"}
    program = (
        "import sys, importlib\n"
        "for name in ('pyspark', 'duckdb', 'polars', 'pandas', 'psycopg', 'sqlalchemy', 's3fs', 'typer'):\n"
        "    sys.modules[name] = None\n"
        "module = importlib.import_module('ducklake_dagster')\n"
        "import dagster as dg\n"
        "found = [getattr(module, name) for name in dir(module)]\n"
        "print(sorted(one.__name__ for one in found if isinstance(one, type) and issubclass(one, dg.Component)))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.strip() == "['DuckLakeComponent', 'DuckLakeMaintenanceComponent', 'DuckLakeTablesComponent']", done.stderr
