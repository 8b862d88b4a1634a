"""Types in public signatures can be imported from the package itself, and are never Any."""

from __future__ import annotations

import pytest

from tests.project.public_names import exports, names_in, parameters, resolve

# Types that only the library passes to public classes. Users never name them.
MACHINERY = {
    "CatalogReader", "Database", "LakeContext", "TableStateCache", "Base",      # the catalog's side of a lake
    "WriteState", "WrittenFile", "MergeClause", "Frame",                        # executors' and builders' reports to a transaction
    "ScanPlan", "ChangePlan", "FileTask", "ScanProjection",                     # plans, as engines run them
}  # fmt: skip


@pytest.mark.parametrize("package", ["ducklake_core", "ducklake_dagster"])
def test_every_type_in_a_public_annotation_is_exported(package: str) -> None:
    public = exports(package)
    exported = {(named.module, named.name) for named in public.values()}
    missing = {}
    for name, named in public.items():
        for parameter in parameters(named.module, named.name, package, name):
            for used in names_in(parameter.annotation):
                known = resolve(parameter.module, used, package)
                if known is not None and (known.module, known.name) not in exported and not used.startswith("_") and used not in MACHINERY:
                    missing.setdefault(f"{known.module}.{known.name}", str(parameter))
    assert not missing, "\n".join(f"{one}: {where}" for one, where in sorted(missing.items()))


def test_no_public_parameter_is_of_any_type() -> None:
    public = exports("ducklake_core")
    vague = {
        str(parameter)
        for name, named in public.items()
        for parameter in parameters(named.module, named.name, "ducklake_core", name)
        if parameter.kind not in ("result", "field") and "Any" in names_in(parameter.annotation)
    }
    assert not vague, "\n".join(sorted(vague))
