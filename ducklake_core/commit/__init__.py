"""Commit staged changes as a snapshot.

Input: a :class:`~ducklake_core.commit.request.CommitRequest` with frozen actions and the base snapshot that they were planned on.
Output: a committed snapshot, or one of two other endings (failed, unknown).

One attempt of a commit runs in one short database transaction::

    actions + head --conflicts--> conflict? --resolution--> catalog rows --committer--> COMMIT
                                     | yes: the transaction rebases and tries again

``actions`` holds the staged changes, ``conflicts`` the rules that compare them with commits of other writers, ``resolution`` the pure
function from actions to catalog rows, ``snapshot_builder`` the counters and totals of the new snapshot, and ``committer`` the attempts.
Before the commit, ``alterations`` merges changes of a table into one action, ``request`` carries everything that one commit needs, and
``registration`` protects the files of long writes from sweeps.
"""
