"""Flights out of New York in 2013 as a small Dagster project on a DuckLake: the example to copy from.

``python -m examples.flights`` runs it in the terminal; ``workspace.yaml`` opens it in Dagster's web interface.
"""

from __future__ import annotations
