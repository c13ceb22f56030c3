import signal
from pathlib import Path

import pytest

from engines.placement import Placement
from noidle.errors import ConfigError
from noidle.jobs import EngineName
from ops.plan import (
    PerEngine,
    UpOptions,
    choose_placements,
    flower_spec,
    memory_shares,
    pool_specs,
    router_spec,
    valkey_spec,
)
from ops.valkey import Valkey
from workers.settings import Settings

URL = "redis://:topsecret@127.0.0.1:7777/0"
SETTINGS = Settings(url=URL, data_dir=Path("/data"), host="box")
CPU = Placement(engine=EngineName.CPU, can_run=True, device="2 cores")
CUDA = Placement(engine=EngineName.CUDA, can_run=False, why="no NVIDIA device")
CARDS = Placement(
    engine=EngineName.CUDA, can_run=True, device="card", torch_devices=("cuda:0", "cuda:1")
)
STAND_IN = Placement(engine=EngineName.GPU, can_run=True, stand_in=True, why="the CPU stands in")


def test_every_engine_that_can_run_is_chosen():
    assert choose_placements([CPU, CUDA, STAND_IN], None) == [CPU, STAND_IN]


def test_only_the_wanted_engines_are_chosen():
    assert choose_placements([CPU, STAND_IN], (EngineName.GPU,)) == [STAND_IN]


def test_a_wanted_engine_that_cannot_run_is_refused_with_the_reason_and_the_way_out():
    with pytest.raises(ConfigError, match=r"cuda.*no NVIDIA device.*--stand-in"):
        choose_placements([CPU, CUDA], (EngineName.CPU, EngineName.CUDA))


def test_each_device_gets_a_pool_of_its_own():
    specs = pool_specs(CARDS, UpOptions(), SETTINGS, {}, signal.SIGKILL, {})
    assert [spec.name for spec in specs] == ["cuda", "cuda.1"]
    assert "--index" not in specs[0].command
    assert specs[0].command[-2:] == ("--device", "cuda:0")
    assert specs[1].command[-4:] == ("--index", "1", "--device", "cuda:1")


def test_pools_on_one_device_share_its_memory():
    gpu = Placement(engine=EngineName.GPU, can_run=True, torch_devices=("cuda:0",))
    shares = memory_shares([CPU, CARDS, gpu], {"cuda:0": 1000, "cuda:1": 1000})
    assert shares == {"cuda:0": 450}
    first, second = pool_specs(CARDS, UpOptions(), SETTINGS, {}, signal.SIGKILL, shares)
    assert first.command[-2:] == ("--memory-bytes", "450")
    assert "--memory-bytes" not in second.command


def test_a_device_that_nobody_can_measure_is_not_shared_out():
    gpu = Placement(engine=EngineName.GPU, can_run=True, torch_devices=("mps:0",))
    hybrid = Placement(engine=EngineName.HYBRID, can_run=True, torch_devices=("mps:0",))
    assert memory_shares([gpu, hybrid], {}) == {}


def test_options_for_one_engine_go_before_those_for_all():
    options = UpOptions(
        slots=PerEngine(every=2, single={EngineName.GPU: 9}),
        program=PerEngine(every="echo"),
        preload=("mini",),
    )
    [cpu] = pool_specs(CPU, options, SETTINGS, {}, signal.SIGKILL, {})
    [gpu] = pool_specs(STAND_IN, options, SETTINGS, {}, signal.SIGKILL, {})
    assert cpu.command[4:] == (
        "worker",
        "cpu",
        "--slots",
        "2",
        "--program",
        "echo",
        "--preload",
        "mini",
    )
    assert "9" in gpu.command
    assert gpu.command[-1] == "--stand-in"


def test_a_draining_pool_has_more_time_than_its_own_grace():
    [spec] = pool_specs(CPU, UpOptions(), SETTINGS, {}, signal.SIGKILL, {})
    assert spec.grace_s > SETTINGS.grace_s


def test_no_secret_is_on_any_command_line():
    server = Valkey(
        binary=Path("/bin/valkey-server"), folder=Path("/data"), port=7777, password="topsecret"
    )
    specs = [
        valkey_spec(server, {}),
        router_spec(SETTINGS, {}, signal.SIGKILL),
        flower_spec(SETTINGS, {}, 5555, signal.SIGKILL),
        *pool_specs(CPU, UpOptions(), SETTINGS, {}, signal.SIGKILL, {}),
    ]
    assert not [spec for spec in specs if "topsecret" in " ".join(spec.command)]
    assert all(spec.environment["NOIDLE_URL"] == URL for spec in specs[1:])


def test_options_travel_as_json():
    options = UpOptions(
        engines=(EngineName.CPU,), slots=PerEngine(single={EngineName.CPU: 3}), redis=URL
    )
    assert UpOptions.model_validate_json(options.model_dump_json()) == options
