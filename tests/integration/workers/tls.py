"""A Valkey behind TLS and a password. Where the server binary itself speaks no TLS, a small
relay does it."""

import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.valkey_process import ValkeyProcess

PASSWORD = "hush"


class TlsValkey:
    """Started and ended by `with`."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "certificate.pem"
        self._key = folder / "key.pem"
        self._server = ValkeyProcess(folder)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"rediss://:{PASSWORD}@localhost:{port}/0"

    def __enter__(self) -> Self:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=DNS:localhost"),
                *("-keyout", str(self._key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        self._server.start()
        with socket.create_connection(("127.0.0.1", self._server.port)) as admin:
            admin.sendall(f"CONFIG SET requirepass {PASSWORD}\r\n".encode())
            assert admin.recv(16) == b"+OK\r\n"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._server.kill()

    def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self._key)
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(context, plain), daemon=True).start()

    def _relay(self, context: ssl.SSLContext, plain: socket.socket) -> None:
        with suppress(OSError):
            secure = context.wrap_socket(plain, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._server.port))
            threading.Thread(target=_copy, args=(server, secure), daemon=True).start()
            _copy(secure, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.close()
