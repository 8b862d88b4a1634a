"""Random histories of a lake: DuckDB, this library and a second implementation change it, and all read the same after every step.

``actions`` defines what can happen, ``operations`` draws it (a table of operations, each with its SQL and its call of the library),
``play`` performs it and compares, ``maintenance`` runs maintenance and checks that nothing but files changed, ``second`` runs the second
implementation, and ``divergences`` lists what DuckDB does wrong. The model of a table is a temporary table of DuckDB that gets the
same SQL, so values of every type have an expected result. ``python -m tests.property.histories 100 120`` searches for failures, and
shortens them.

The modes of a history (:class:`play.Mode`): ``duckdb`` (DuckDB changes the lake as well; its reads are the expectation), ``second`` (the
second implementation does), and ``alone`` (only this library, by one object that is never closed).
"""
