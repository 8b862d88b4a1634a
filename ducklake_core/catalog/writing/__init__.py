"""Read and write the catalog inside the database transaction of a commit.

In: an open write transaction and a request (:class:`~ducklake_core.catalog.writing.head.HeadRequest`, catalog changes, snapshot ids).
Out: the newest state that a commit is checked against, or changed rows; the caller commits or rolls back.

``head`` reads the newest snapshot and the state that a commit is checked against, ``writer`` applies catalog changes in order, ``expiry``
removes snapshots and schedules files that no surviving snapshot needs, and ``repair`` corrects catalog rows after an integrity check.
"""
