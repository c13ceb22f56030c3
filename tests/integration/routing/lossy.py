"""A way to the server that can lose an answer: the command is done, its client hears nothing."""

import contextlib
import socket
import threading


class LossyProxy:
    """Forwards one port of the loopback address to another."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._lose = 0
        self._down = False
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, answers: int) -> None:
        """The next answers do not arrive, and their connections break."""
        self._lose = answers

    def go_down(self) -> None:
        """No new connection gets anywhere."""
        self._down = True

    def come_back(self) -> None:
        self._down = False

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._down:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                pair = threading.Thread(target=self._answers, args=(client, server), daemon=True)
                pair.start()
                commands = threading.Thread(
                    target=self._commands, args=(client, server), daemon=True
                )
                commands.start()

    def _commands(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self._lose:
                    self._lose -= 1
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)
