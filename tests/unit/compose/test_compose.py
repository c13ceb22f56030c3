"""The compose file and the image, read by a parser where Docker is not to be had."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from noidle.jobs import EngineName
from ops.cli import VERBS
from workers.settings import PREFIX, Settings, load_settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "compose"
ACCELERATED = {"hybrid", "cuda", "gpu"}
OURS = {"router", "flower", *EngineName}
VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")


class Strict(yaml.SafeLoader):
    """Refuses a key that is given twice, which YAML forbids and PyYAML lets pass."""


def _mapping(loader: Strict, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    names = [loader.construct_object(key) for key, _ in node.value if key.tag != MERGE]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"given twice: {twice}"
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


MERGE = "tag:yaml.org,2002:merge"
Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (FOLDER / "compose.yaml").read_text()
    parsed = yaml.load(text, Loader=Strict)
    assert isinstance(parsed, dict)
    return parsed


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = compose["services"]
    assert isinstance(found, dict)
    return found


def test_every_part_of_the_cluster_is_a_service(services):
    assert set(services) == {"redis", *OURS}


def test_only_the_parts_that_compose_knows_are_used(compose, services):
    known = {"name", "services", "volumes"}
    assert {part for part in compose if not part.startswith("x-")} == known
    parts = {
        *("image", "build", "command", "environment", "volumes", "ports", "healthcheck"),
        *("depends_on", "init", "restart", "stop_grace_period", "profiles", "deploy"),
    }
    for service in services.values():
        assert set(service) <= parts


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_service_runs_a_verb_of_the_command(services, name):
    verb, *rest = services[name]["command"]
    assert verb in VERBS
    assert (verb, rest[:1]) == ("worker", [name]) or verb == name


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_service_is_set_up_by_the_variables_of_a_bare_host(services, name):
    given = services[name]["environment"]
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    assert set(given) == known
    settings = load_settings({key: _filled(value) for key, value in given.items() if value})
    assert settings.url == "redis://:set@redis:6379/0"
    assert settings.host == "compose"


@pytest.mark.parametrize("name", ["redis", *sorted(OURS)])
def test_a_service_comes_back_and_says_how_it_is(services, name):
    service = services[name]
    assert service["restart"] == "unless-stopped"
    health = service["healthcheck"]
    assert health["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries", "start_period"} <= set(health)
    if name != "redis":
        assert health["test"][1:] == ["python", "compose/health.py", name]
        assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}
        assert service["init"] is True


@pytest.mark.parametrize("name", sorted(OURS))
def test_only_the_accelerated_engines_ask_for_a_gpu_and_under_a_profile(services, name):
    service = services[name]
    assert service.get("profiles") == (["gpu"] if name in ACCELERATED else None)
    if name in ACCELERATED:
        [device] = service["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    else:
        assert "deploy" not in service


def test_redis_loses_nothing_and_asks_for_a_password(services):
    command = services["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--appendonly"] == "yes"
    assert VARIABLE.fullmatch(options["--requirepass"])
    assert "ports" not in services["redis"]


def test_no_password_has_a_default(compose):
    text = (FOLDER / "compose.yaml").read_text()
    for name, kind, _ in VARIABLE.findall(text):
        assert kind == ("?" if "PASSWORD" in name else "-"), name


def test_a_pool_has_more_time_to_stop_than_its_grace(services):
    assert float(services["cpu"]["stop_grace_period"].removesuffix("s")) > Settings().grace_s + 5


def test_named_volumes_and_only_those_are_declared(compose, services):
    used = {
        volume.partition(":")[0]
        for service in services.values()
        for volume in service["volumes"]
        if not volume.startswith(("$", ".", "/"))
    }
    assert used == set(compose["volumes"])


def test_nothing_is_published_beyond_this_host(services):
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_image_holds_every_folder_that_it_copies_and_every_package_of_the_cluster():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    copied = {
        source.rstrip("/")
        for line in lines
        if line.startswith("COPY ") and "--from=" not in line
        for source in line.split()[1:-1]
    }
    ignore = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == copied
    assert {"noidle", "tensor_llm", "engines", "routing", "workers", "ops"} <= copied
    for source in copied - {"README.md", "LICENSE"}:
        assert (ROOT / source).exists(), source
    assert "USER noidle" in lines


def _filled(text: str) -> str:
    """As compose would: the default, or a value where one must be given."""
    return VARIABLE.sub(lambda found: found[3] if found[2] == "-" else "set", text)
