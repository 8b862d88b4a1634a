"""Conditions and scalar expressions: parse, bind, fold, prune, render.

In: SQL text in DuckDB's dialect, or a :class:`~ducklake_core.format.expressions.conditions.Condition` built with
:func:`ducklake_core.col`. Out: a predicate (``predicates``), an immutable tree that is bound to the ids and types of a table's columns.

``conditions.bind`` is the entry point. ``syntax`` parses text with sqlglot, ``parser`` turns the tree into a predicate, ``literals`` types
its constants, ``nested_tests`` finds conditions inside of variants and geometries, ``comparison`` compares values of two types, and
``ranges`` folds long chains. A predicate then goes three ways: ``pruning`` decides from a file's statistics, ``sql`` renders it for Spark
and DuckDB, and :mod:`ducklake_core.engines.arrow.evaluate` evaluates it over rows.
"""
