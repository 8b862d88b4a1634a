"""Conditions and scalar expressions: parse, bind, fold, prune, render.

A condition arrives as SQL text or as :class:`~ducklake_core.format.expressions.conditions.Condition`; ``conditions.bind`` binds it to
a table's columns as a predicate (``predicates``). ``ranges`` folds long chains, ``pruning`` decides from statistics, ``sql`` renders a
predicate for Spark and DuckDB, and :mod:`ducklake_core.engines.arrow.evaluate` evaluates it over rows.
"""
