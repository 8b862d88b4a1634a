"""Commits of other writers as events of assets.

``commit_sensor`` reads new snapshots and requests runs downstream, ``commit_events`` turns their changes into materializations and
observations.
"""
