"""s3fs with a total time limit per call, and with uploads that are completed even if the answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from ducklake_core.storage.stores import TimeLimitError

Answer = TypeVar("Answer")


class LimitedS3FileSystem(S3FileSystem):  # type: ignore[misc]
    """S3 whose calls end after ``call_timeout`` seconds, retries included.

    Args:
        call_timeout: Maximum seconds per call.
        call_attempts: Maximum number of times that s3fs makes a call; botocore retries each of them by its own settings.
        options: Options of s3fs.
    """

    def __init__(self, *args: Any, call_timeout: float, call_attempts: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.call_timeout, self.retries = call_timeout, call_attempts
        self._sent: dict[str, dict[int, int]] = {}

    async def _limited(self, what: str, answer: Awaitable[Answer]) -> Answer:
        task = asyncio.ensure_future(answer)
        done, _ = await asyncio.wait({task}, timeout=self.call_timeout)
        if done:
            return task.result()
        # What is cancelled may take its time, which the caller has no more of.
        task.cancel()
        raise TimeLimitError(f"no answer to {what} within {self.call_timeout:g} s")

    async def _call_s3(self, method: str, *akwarglist: Any, **kwargs: Any) -> Any:
        # Sizes of the parts are noted, so that a lost answer to the completion can be distinguished from a failed upload.
        upload = kwargs.get("UploadId")
        if method == "upload_part" and upload:
            self._sent.setdefault(upload, {})[kwargs["PartNumber"]] = _size(kwargs.get("Body"))
        try:
            return await self._limited(method, super()._call_s3(method, *akwarglist, **kwargs))
        except Exception as error:
            if method != "complete_multipart_upload" or upload not in self._sent:
                raise
            found = await self._completed(kwargs["Bucket"], kwargs["Key"], sum(self._sent[upload].values()))
            if found is None:
                raise error from None
            return found
        finally:
            if method in ("complete_multipart_upload", "abort_multipart_upload"):
                self._sent.pop(str(upload), None)

    call_s3 = sync_wrapper(_call_s3)

    async def _completed(self, bucket: str, key: str, size: int) -> dict[str, Any] | None:
        """Return the response to HEAD if the object is complete: the store finished the upload, and its response was lost.

        Names of files are unique, so an object of that name and size is the upload's.
        """
        try:
            found: dict[str, Any] = await self._limited("head_object", super()._call_s3("head_object", Bucket=bucket, Key=key))
        except Exception:  # noqa: BLE001 - the error of the upload is the one to raise
            return None
        return found if found.get("ContentLength") == size else None

    async def _cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return await self._limited("get_object", super()._cat_file(path, *args, **kwargs))


def _size(body: Any) -> int:
    return len(body) if isinstance(body, bytes | bytearray | memoryview) else int(body.getbuffer().nbytes)
