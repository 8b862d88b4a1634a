"""Flights out of New York in 2013 as a small Dagster project on a DuckLake: the example to copy from.

Start with ``assets`` and ``definitions``, which are the project itself; ``fleet`` has assets with audits, checks and change feeds. The rest
is the demo: ``run`` and ``chapters`` run its chapters, ``report`` prints the results, and ``places`` names its folders.
``python -m examples.flights`` runs it in the terminal; ``workspace.yaml`` opens it in Dagster's web interface.
"""

from __future__ import annotations
