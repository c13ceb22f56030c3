from pathlib import Path

from ops.metrics.host import HostMeter


def make_proc(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_first_sample_has_no_rates(tmp_path: Path):
    proc = make_proc(tmp_path / "proc", stat="ctxt 100\n", vmstat="pgmajfault 5\n")
    first = HostMeter("box", proc=proc, sys=tmp_path).sample(10.0)
    assert first.host == "box"
    assert first.cpu_percent is None
    assert first.major_faults_per_s is None
    assert first.context_switches_per_s is None


def test_rates_are_means_since_the_sample_before(tmp_path: Path):
    proc = make_proc(tmp_path / "proc", stat="ctxt 100\n", vmstat="pgmajfault 5\n")
    meter = HostMeter("box", proc=proc, sys=tmp_path)
    meter.sample(10.0)
    make_proc(proc, stat="ctxt 300\n", vmstat="pgmajfault 9\n")
    second = meter.sample(14.0)
    assert second.context_switches_per_s == 50.0
    assert second.major_faults_per_s == 1.0


def test_what_the_kernel_does_not_tell_is_absent(tmp_path: Path):
    meter = HostMeter("box", proc=tmp_path / "none", sys=tmp_path)
    meter.sample(1.0)
    sample = meter.sample(2.0)
    for name in (
        "stall_cpu_percent",
        "stall_memory_percent",
        "stall_io_percent",
        "swap_used_bytes",
        "compressed_bytes",
        "major_faults_per_s",
        "context_switches_per_s",
    ):
        assert getattr(sample, name) is None, name


def test_compressed_memory_adds_zram_devices_and_zswap(tmp_path: Path):
    proc = make_proc(tmp_path / "proc", meminfo="SwapTotal: 8 kB\nSwapFree: 2 kB\nZswap: 3 kB\n")
    device = tmp_path / "sys/block/zram0"
    device.mkdir(parents=True)
    (device / "mm_stat").write_text("9000 4000 5000 0 5000 0 0 0 0\n")
    sample = HostMeter("box", proc=proc, sys=tmp_path / "sys").sample(1.0)
    assert sample.swap_used_bytes == 6 * 1024
    assert sample.compressed_bytes == 5000 + 3 * 1024


def test_a_real_host_tells_its_memory_and_cores():
    meter = HostMeter()
    meter.sample(1.0)
    sample = meter.sample(2.0)
    assert sample.cores >= 1
    assert sample.memory_total_bytes
    assert sample.memory_available_bytes
    assert sample.memory_available_bytes <= sample.memory_total_bytes
