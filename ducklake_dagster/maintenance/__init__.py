"""Maintenance of a lake by Dagster: jobs, schedules and sensors.

``jobs`` builds the definitions, also of the sensor that requests a run when a lake needs it; ``steps`` builds the ops that run one
operation each, and ``snapshot_pins`` protects the snapshots that unfinished runs read.
"""
