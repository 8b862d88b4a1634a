"""Maintenance of a lake by Dagster: jobs, schedules and sensors.

``jobs`` builds the definitions, ``steps`` the ops that run one operation each, ``sensor`` requests a run when a lake needs it, and
``snapshot_pins`` protects the snapshots that unfinished runs read.
"""
