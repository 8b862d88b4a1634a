"""The last look before a commit to an encrypted lake: readers refuse files without a key there, so none may get in."""

from __future__ import annotations

from collections.abc import Iterable

from ducklake_core.commit.actions import Action, AddDeleteFiles, AddFiles, AppendFiles, MergeFiles, StagedDeleteFile
from ducklake_core.commit.moved_rows import CumulativeDeletes, FlushInlined, RewriteFiles
from ducklake_core.errors import CommitError
from ducklake_core.format.files.data_files import WrittenFile


def check_encrypted(actions: Iterable[Action]) -> None:
    """Refuse files that were written in plain.

    Raises:
        CommitError: There is one.
    """
    for action in actions:
        for file in _files(action):
            if file.encryption_key is None:
                raise CommitError(f"{file.path} is not encrypted, but the lake is; nothing was committed", path=file.path)


def _files(action: Action) -> Iterable[WrittenFile | StagedDeleteFile | CumulativeDeletes]:
    match action:
        case AppendFiles(files=files):
            return files
        case AddFiles(files=added):
            return [file.file for file, _ in added]
        case AddDeleteFiles(files=deletes):
            return deletes
        case MergeFiles(merges=merges):
            return [merge.output for merge in merges]
        case FlushInlined(files=flushed, gathered=gathered):
            return [
                *(file.output for file in flushed),
                *(file.deletes for file in flushed if file.deletes is not None),
                *(deletes.file for deletes in gathered),
            ]
        case RewriteFiles(sources=sources, outputs=outputs):
            return [*(file for file, _ in outputs), *(source.gathered.file for source in sources if source.gathered is not None)]
        case _:
            return ()
