"""Reads and writes of a commit inside its own database transaction.

``head`` reads the newest snapshot and what a commit is checked against, ``writer`` carries out catalog changes in order, ``expiry``
removes snapshots and schedules files that no surviving snapshot needs, and ``repair`` corrects catalog rows after an integrity check.
"""
