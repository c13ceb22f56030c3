"""Flower as `noidle flower` runs it, against a real Valkey."""

import base64
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.ops.commands import run, start, stop, wait_for
from tests.valkey_process import ValkeyProcess, free_port


class Site:
    """A running Flower and its password."""

    def __init__(self, process: subprocess.Popen[str], port: int, password: str) -> None:
        self.process = process
        self.port = port
        self.password = password

    def ask(
        self, path: str, password: str | None = None, method: str = "GET", **headers: str
    ) -> tuple[int, str]:
        """Status and body; `password` as HTTP basic authentication."""
        if password is not None:
            user = base64.b64encode(f"noidle:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {user}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def answers(self) -> bool:
        try:
            return self.ask("/healthcheck")[0] == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyProcess) -> Iterator[Site]:
    data, port = tmp_path_factory.mktemp("flower"), free_port()
    process = start(data, "flower", "--port", str(port), url=valkey_server.url)
    try:
        found = Site(process, port, "")
        wait_for(found.answers, "Flower's health")
        found.password = (data / "secrets" / "flower").read_text()
        yield found
    finally:
        stop(process)


@pytest.mark.parametrize("path", ["/", "/workers", "/tasks", "/broker", "/api/workers"])
def test_nobody_enters_without_the_password(site: Site, path: str):
    assert site.ask(path)[0] == 401
    assert site.ask(path, "wrong")[0] == 401
    assert site.ask(path, site.password)[0] == 200


def test_a_job_cannot_be_revoked_without_the_password(site: Site):
    assert site.ask("/api/task/revoke/some-id", method="POST")[0] == 401


@pytest.mark.parametrize("path", ["/metrics", "/healthcheck"])
def test_figures_are_for_programs_on_this_host_only(site: Site, path: str):
    assert site.ask(path)[0] == 200
    # what a reverse proxy on this host would pass on is not local
    assert site.ask(path, X_Forwarded_For="203.0.113.9")[0] == 401
    assert site.ask(path, site.password, X_Forwarded_For="203.0.113.9")[0] == 200


def test_controls_that_pools_do_not_have_say_so(site: Site):
    for path in (
        "/api/worker/pool/grow/cpu@box",
        "/api/worker/pool/autoscale/cpu@box",
        "/api/worker/queue/add-consumer/cpu@box",
        "/api/task/timeout/noidle.generate",
    ):
        status, body = site.ask(path, site.password, method="POST")
        assert status == 409, path
        assert "noidle worker --slots" in json.loads(body)["message"]
        assert site.ask(path, method="POST")[0] == 401


def test_the_password_is_on_no_command_line(site: Site):
    assert site.password
    lines = [
        " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    ]
    assert not [line for line in lines if site.password in line]


def test_a_taken_port_is_one_clear_line(site: Site, tmp_path: Path, valkey_url: str):
    done = run(tmp_path, "flower", "--port", str(site.port), url=valkey_url)
    assert done.returncode == 2
    assert f"port {site.port}" in done.stderr
    assert "--port" in done.stderr


def test_an_empty_password_file_is_refused(tmp_path: Path, valkey_url: str):
    (tmp_path / "empty").write_text("\n")
    done = run(tmp_path, "flower", "--password-file", str(tmp_path / "empty"), url=valkey_url)
    assert done.returncode == 2
    assert "is empty" in done.stderr
