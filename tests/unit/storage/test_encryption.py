"""Encrypted Parquet files: read as plain ones, made from plain ones, and rejected as soon as anything about them is wrong."""

from __future__ import annotations

import base64
import io
import pickle
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from ducklake_core.errors import CatalogCorruptError, CorruptFileError, DuckLakeError, NotFoundError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import EncryptionKey
from ducklake_core.storage.encryption.compact import BadStructError, Items, Struct, read_struct, write_struct
from ducklake_core.storage.encryption.encrypting import EncryptedEnd, EncryptingSink
from ducklake_core.storage.encryption.reading import BadModuleError, Cipher
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_files import open_parquet

STORAGE = Storage()
KEY = EncryptionKey("AAECAwQFBgcICQoLDA0ODw==")
TABLE = pa.table(
    {
        "i": pa.array(range(1000), pa.int64()),
        "text": pa.array([None if i % 7 == 0 else f"text {i % 13}" for i in range(1000)]),
        "nested": pa.array([None if i % 11 == 0 else [{"x": i, "y": "y" if i % 5 else None}] * (i % 4) for i in range(1000)]),
        "decimal": pa.array(range(1000)).cast(pa.decimal128(21, 2)),
        "flag": pa.array([i % 3 == 0 for i in range(1000)]),
    }
)
WAYS: dict[str, dict[str, Any]] = {
    "as we write": {},
    "small pages": {"data_page_size": 200, "dictionary_pagesize_limit": 100, "write_batch_size": 20},
    "pages v2": {"data_page_version": "2.0", "data_page_size": 500, "write_batch_size": 50},
    "no dictionary": {"use_dictionary": False, "compression": "none", "row_group_size": 100},
    "zstd": {"compression": "zstd", "row_group_size": 300},
    "page index and checksums": {"write_page_index": True, "write_page_checksum": True, "row_group_size": 400},
    "no statistics": {"write_statistics": False},
}


def encrypt(plain: bytes | pa.Buffer, sink: pa.NativeFile, key: EncryptionKey) -> EncryptedEnd:
    encrypting = EncryptingSink(sink, key, "the source")
    encrypting.write(plain)
    return encrypting.finish()


def encrypted(path: Path, table: pa.Table = TABLE, key: EncryptionKey = KEY, **options: Any) -> Path:
    plain = pa.BufferOutputStream()
    pq.write_table(table, plain, **options)
    with pa.OSFile(str(path), "wb") as sink:
        end = encrypt(plain.getvalue(), sink, key)
    content = path.read_bytes()
    assert (end.size, end.footer_size) == (len(content), int.from_bytes(content[-8:-4], "little"))
    assert content[:4] == content[-4:] == b"PARE"
    return path


def read(path: Path, key: EncryptionKey | None = KEY, **options: Any) -> pa.Table:
    with open_parquet(STORAGE, str(path), key) as source:
        return pq.ParquetFile(source, page_checksum_verification=True).read(**options)


@pytest.mark.parametrize("way", WAYS)
def test_encrypted_files_are_read_back(tmp_path: Path, way: str) -> None:
    path = encrypted(tmp_path / "f.parquet", **WAYS[way])
    assert read(path).equals(TABLE)
    assert read(path, columns=["nested"], use_threads=False).equals(TABLE.select(["nested"]))
    with open_parquet(STORAGE, str(path), KEY) as source:
        batches = list(pq.ParquetFile(source).iter_batches(77, columns=["text", "i"]))
    assert pa.Table.from_batches(batches).equals(TABLE.select(["text", "i"]))


# DuckDB fails by an internal error where pages of version 2 are left uncompressed in a compressed column.
@pytest.mark.parametrize("way", [way for way in WAYS if way != "pages v2"])
@pytest.mark.parametrize("length", [16, 32])
def test_duckdb_reads_what_is_encrypted(tmp_path: Path, way: str, length: int) -> None:
    # A string, as DuckDB reads base64 of 24 characters as a key of that length.
    raw = bytes(range(64, 64 + length))
    path = encrypted(tmp_path / "f.parquet", key=EncryptionKey(base64.b64encode(raw).decode()), **WAYS[way])
    connection = duckdb.connect()
    connection.execute(f"PRAGMA add_parquet_key('k', '{raw.decode()}')")
    found = connection.execute(f"FROM read_parquet('{path}', encryption_config = {{footer_key: 'k'}})").to_arrow_table()
    assert found.cast(TABLE.schema).to_pylist() == TABLE.to_pylist()


def test_a_file_without_rows(tmp_path: Path) -> None:
    assert read(encrypted(tmp_path / "f.parquet", TABLE.slice(0, 0))).equals(TABLE.slice(0, 0))
    assert read(encrypted(tmp_path / "g.parquet", TABLE.select([]).slice(0, 0))).num_columns == 0


def test_the_image_is_a_plain_file_from_its_first_byte_to_its_last(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "f.parquet", row_group_size=300)
    with open_parquet(STORAGE, str(path), KEY) as source:
        image = source.read()
        for start, end in ((0, 10), (3, 700), (len(image) - 9, len(image)), (5000, 5001), (0, len(image))):
            source.seek(start)
            assert source.read(end - start) == image[start:end]
        assert source.read(1) == b""
        assert source.size() == len(image)
    assert pq.read_table(pa.BufferReader(image)).equals(TABLE)
    plain = tmp_path / "plain.parquet"
    plain.write_bytes(image)
    assert duckdb.sql(f"SELECT sum(i) FROM '{plain}'").fetchall() == [(499500,)]


class Counting(Storage):
    """A store that notes what is read."""

    reads: list[tuple[int, int]]

    def open_input(self, path: str) -> Any:
        reads = self.reads
        source = super().open_input(path)

        class Noting(io.RawIOBase):
            def size(self) -> int:
                return int(source.size())

            def read_at(self, length: int, offset: int) -> bytes:
                reads.append((offset, length))
                return bytes(source.read_at(length, offset))

        return Noting()


def test_only_wanted_chunks_are_read(tmp_path: Path) -> None:
    table = pa.table({"a": range(100_000), "b": [f"{i * 7919 % 100_003:>20}" for i in range(100_000)]})
    path = encrypted(tmp_path / "f.parquet", table, row_group_size=10_000, use_dictionary=False)
    storage = Counting()
    object.__setattr__(storage, "reads", [])
    with open_parquet(storage, str(path), KEY) as source:
        file = pq.ParquetFile(source)
        assert len(storage.reads) == 1, "the footer"
        assert file.read_row_group(3, columns=["a"]).column(0).to_pylist() == list(range(30_000, 40_000))
    assert len(storage.reads) == 2
    assert storage.reads[1][1] == file.metadata.row_group(3).column(0).total_compressed_size


def test_any_changed_byte_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    table = TABLE.select(["i", "text"]).slice(0, 20)
    path = encrypted(tmp_path / "f.parquet", table)
    content = path.read_bytes()
    unnoticed = []
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x41]) + content[position + 1 :])
        try:
            assert read(path).equals(table)
            unnoticed.append(position)
        except (CorruptFileError, UnsupportedFeatureError) as error:
            assert str(path) in error.message
    assert unnoticed == [0, 1, 2, 3], "the first magic, which no reader looks at"


def test_any_cut_is_an_error(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "f.parquet", TABLE.select(["i"]).slice(0, 20))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CorruptFileError):
            read(path)
        path.write_bytes(content[length + 1 :])
        with pytest.raises(CorruptFileError):
            read(path)


def test_pages_in_the_wrong_place_are_an_error(tmp_path: Path) -> None:
    """Their tags are right, as nothing binds a module to its place."""
    table = pa.table({"a": pa.array(range(1000), pa.int64()), "b": pa.array(range(1000), pa.int64())})
    path = encrypted(tmp_path / "f.parquet", table, row_group_size=900, use_dictionary=False, compression="none")
    with open_parquet(STORAGE, str(path), KEY) as source:
        groups = pq.ParquetFile(source).metadata
    chunk = groups.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    begin, end = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    header = begin + 4 + int.from_bytes(content[begin : begin + 4], "little")
    swapped = content[header:end] + content[begin:header]
    path.write_bytes(content[:begin] + swapped + content[end:])
    with pytest.raises(CorruptFileError, match="column 'a' in row group 0"):
        read(path)
    assert read(path, columns=["b"]).equals(table.select(["b"]))


def test_a_page_too_few_is_an_error(tmp_path: Path) -> None:
    """The footer of one file over the chunks of another that has other pages."""
    short, long = (
        encrypted(tmp_path / name, pa.table({"a": pa.array([7] * rows, pa.int64())}), use_dictionary=False, compression="none")
        for name, rows in (("short", 100), ("long", 101))
    )
    first, second = short.read_bytes(), long.read_bytes()
    start = len(second) - 8 - int.from_bytes(second[-8:-4], "little")
    here = len(first) - 8 - int.from_bytes(first[-8:-4], "little")
    short.write_bytes(first[:here] + bytes(start - here) + second[start:])
    with pytest.raises(CorruptFileError, match="column 'a'"):
        read(short)


def test_wrong_and_bad_keys(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "f.parquet")
    with pytest.raises(CorruptFileError, match="cannot be decrypted: the catalog's key is not the file's"):
        read(path, EncryptionKey.random())
    for text in ("", "AAEC", "%%%", "AAECAwQFBgcICQoLDA0ODx", "schlüssel"):
        with pytest.raises(CatalogCorruptError, match="not the base64 text of an AES key") as raised:
            read(path, EncryptionKey(text))
        assert not text or text not in f"{raised.value}{raised.value.details}{raised.value.__cause__}"
    with pytest.raises(UnsupportedFeatureError, match="KEY_ENCRYPTION_KEY"):
        read(path, EncryptionKey("kek1:AAECAwQFBgcICQoLDA0ODw=="))
    with pytest.raises(NotFoundError):
        read(tmp_path / "none.parquet")


def test_a_plain_file_with_a_key(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(TABLE, path)
    with pytest.raises(CorruptFileError, match="is not encrypted, although"):
        read(path)
    assert read(path, None).equals(TABLE)


class PlainKeys(pe.KmsClient):  # type: ignore[misc]
    """A service of keys that hides none."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_foreign_encryption_raises(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "f.parquet"
    columns = {"key": TABLE.schema.names}
    wanted = pe.EncryptionConfiguration(footer_key="key", column_keys=columns, encryption_algorithm=algorithm)
    properties = pe.CryptoFactory(lambda _: PlainKeys()).file_encryption_properties(pe.KmsConnectionConfig(), wanted)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)
    with pytest.raises(UnsupportedFeatureError, match=r"another algorithm|associated data"):
        read(path)


def test_a_key_shows_itself_nowhere(tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(KEY)) == KEY
    secret = KEY.base64_text
    assert secret not in f"{KEY!r}{KEY}{[KEY]}"
    path = encrypted(tmp_path / "f.parquet")
    with open_parquet(STORAGE, str(path), KEY) as source:
        assert secret not in repr(source)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DuckLakeError) as raised:
        read(path)
    assert secret not in f"{raised.value!r}{raised.value.details}"


def test_only_plain_parquet_is_encrypted(tmp_path: Path) -> None:
    path = encrypted(tmp_path / "f.parquet")
    for content in (path.read_bytes(), b"PAR1", b"", b"PAR1" + bytes(20) + b"\x08\0\0\0PAR1"):
        with pytest.raises(CorruptFileError, match="the source"):
            encrypt(content, pa.BufferOutputStream(), KEY)


def test_modules_are_never_the_same_twice() -> None:
    cipher = Cipher(bytes(16))
    first, second = (cipher.encrypt_module(b"page") for _ in range(2))
    assert first != second
    for module in (first, second):
        assert cipher.decrypt_module(memoryview(module), 0) == (b"page", len(module))
    with pytest.raises(BadModuleError):
        Cipher(bytes(15) + b"1").decrypt_module(memoryview(first), 0)


def test_structs_keep_what_they_do_not_know() -> None:
    inner = Struct({1: (2, True), 200: (2, False)})
    every = Struct({
        1: (2, True), 2: (3, -5), 4: (6, -300), 5: (8, 2**31 - 1), 6: (10, -(2**63)), 7: (4, 1.5), 8: (11, b"\xff"), 40: (12, inner),
        41: (15, Items(12, [inner, inner])), 42: (15, Items(2, [True, False])), 43: (15, Items(11, [b"x"] * 20)), 44: (15, Items(8, [])),
    })  # fmt: skip
    content = write_struct(every)
    assert read_struct(b"ab" + content, 2) == (every, len(content) + 2)
    for length in range(len(content)):
        with pytest.raises(BadStructError):
            read_struct(content[:length])
    for hostile in (b"\x18\xff\xff\xff\xff\x7f", b"\x19\xfc\xff\xff\xff\x7f", b"\x1a\x11", b"\x1b\x01\x55\x01", b"\x1c" * 100_000, b"\x1f"):
        with pytest.raises(BadStructError):
            read_struct(hostile)
