"""Stores that fail for a moment: a response that is cut short, one 404. No file is called damaged or missing that is neither."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, NotFoundError
from ducklake_core.storage.filesystems import Storage
from tests.support.oracle import LakeAddress


class CutShort:
    """A file that returns half of the bytes of one read."""

    def __init__(self, content: bytes, at: int) -> None:
        self.content, self.at, self.position, self.reads, self.closed = content, at, 0, 0, False

    def read(self, size: int = -1) -> bytes:
        size = len(self.content) - self.position if size < 0 else size
        found = self.content[self.position : self.position + size]
        self.reads += 1
        if self.reads == self.at:
            found = found[: len(found) // 2]
        self.position += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = (0, self.position, len(self.content))[whence] + offset
        return self.position

    def tell(self) -> int:
        return self.position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def flush(self) -> None:
        pass


@dataclass(frozen=True)
class Faulty(Storage):
    """The ``at``-th read of every file is cut short when it is opened for the first time, or always."""

    at: int = 1
    always: bool = False
    opened: set[str] = field(default_factory=set, hash=False)

    def open_input(self, path: str) -> pa.NativeFile:
        if not self.always and path in self.opened:
            return super().open_input(path)
        self.opened.add(path)
        return pa.PythonFile(CutShort(Path(path).read_bytes(), self.at), mode="r")


def made(address: LakeAddress, *, encrypted: bool = False) -> tuple[DuckLake, list[int]]:
    lake = DuckLake.create(address.url, data_path=address.data_path, encrypted=encrypted)
    lake.write("t", pa.table({"i": pa.array(range(300_000), pa.int64())}))
    lake.table("t").delete("i % 3 = 0")
    return lake, [number for number in range(300_000) if number % 3]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_response_that_is_cut_short(sqlite_address: LakeAddress, encrypted: bool) -> None:
    lake, expected = made(sqlite_address, encrypted=encrypted)
    before, hit = lake._storage, 0
    for at in range(1, 12):
        lake._storage = storage = Faulty(options=before.options, at=at)
        assert sorted(lake.table("t").scan().to_arrow().column("i").to_pylist()) == expected, at
        hit += len(storage.opened)
    assert hit


def test_a_file_that_is_damaged(sqlite_address: LakeAddress) -> None:
    lake, _ = made(sqlite_address)
    lake._storage = Faulty(at=1, always=True)
    with pytest.raises(CorruptFileError):
        lake.table("t").scan().to_arrow()


def test_a_flipped_bit_is_seen(sqlite_address: LakeAddress) -> None:
    """Also one that decodes well: without compression every bit of a number is as good as the other."""
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    lake.set_option("parquet_compression", "uncompressed")
    lake.write("t", pa.table({"i": pa.array(range(1000), pa.int64())}))
    (path,) = Path(sqlite_address.data_path).rglob("*.parquet")
    content = bytearray(path.read_bytes())
    position = content.index((500).to_bytes(8, "little") + (501).to_bytes(8, "little"))
    content[position] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CorruptFileError):
        lake.table("t").scan().to_arrow()


class Forgetful(MemoryFileSystem):
    """A store that does not find a file on the first request."""

    protocol = "forgetful"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    missed: ClassVar[set[tuple[str, str]]] = set()

    def _open(self, path: str, mode: str = "rb", **how: Any) -> Any:
        if mode == "rb" and ("open", path) not in self.missed:
            self.missed.add(("open", path))
            raise FileNotFoundError(path)
        return super()._open(path, mode, **how)

    def size(self, path: str) -> int:
        if ("size", path) not in self.missed:
            self.missed.add(("size", path))
            raise FileNotFoundError(path)
        return int(super().size(path))


@pytest.fixture
def forgetful() -> Iterator[str]:
    fsspec.register_implementation("forgetful", Forgetful, clobber=True)
    with Storage().open_output("forgetful:///there.bin") as output:
        output.write(b"hello")
    yield "forgetful://"
    Forgetful.store.clear()
    Forgetful.missed.clear()


def test_one_404(forgetful: str) -> None:
    storage = Storage()
    assert storage.size(f"{forgetful}/there.bin") == 5
    with storage.open_input(f"{forgetful}/there.bin") as source:
        assert source.read() == b"hello"
    with pytest.raises(NotFoundError):
        storage.open_input(f"{forgetful}/never.bin")
