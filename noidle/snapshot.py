"""What pools and hosts publish about themselves. Absent means it could not be read, never
zero. The small snapshot steers, the details are for people."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from noidle.jobs import EngineName


class Pressure(StrEnum):
    """How short memory is, on the host or the device."""

    OK = "ok"  # room for new work
    SOFT = "soft"  # finish what runs, take no training
    HARD = "hard"  # take nothing


class PoolState(StrEnum):
    """Whether a pool takes leases."""

    READY = "ready"  # takes leases
    STARTING = "starting"  # its engine is not up yet
    DRAINING = "draining"  # finishes or hands back, takes nothing
    FAILED = "failed"  # its engine cannot start; `why` says what to do


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ModelInfo(_Wire):
    """A model as the cluster knows it."""

    name: str
    # newest checkpoint; absent while a training job has not written one yet
    revision: str | None = None
    # identity of the storage that holds it; absent: built into the engine program
    storage: str | None = None
    # the training job that is to write its first checkpoint; absent once there is one
    planned: str | None = None
    # tokens
    context: int | None = None
    parameters: int | None = None
    weight_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    # mean UTF-8 bytes of text a token, measured by its tokenizer
    bytes_per_token: float = 3.0


class ModelRates(_Wire):
    """Measured speed of an engine with one model; what was not measured yet is absent."""

    prefill_tokens_per_s: float | None = None
    # one decode step takes step_s + step_s_per_sequence * batch
    step_s: float | None = None
    step_s_per_sequence: float | None = None
    # prompt tokens read in one step, beside which the others decode; absent: not told
    chunk_tokens: float | None = None
    # standard error of the fit by its value, of prefill and of decode steps; absent: exact
    prefill_error: float | None = None
    step_error: float | None = None
    # of the model's files
    weight_bytes: int | None = None


class Rates(ModelRates):
    """Measured speed of a pool's engine; its own figures are those of the model it used last."""

    # seconds to load a model, by bytes of weights
    load_bytes_per_s: float | None = None
    train_tokens_per_s: float | None = None
    # by name, where the engine tells models apart
    models: dict[str, ModelRates] = {}

    def of(self, model: str) -> ModelRates:
        """Those of a model that was never used here are another's: better than none."""
        return self.models.get(model, self)


class PoolSnapshot(_Wire):
    """All the router needs to know of one pool, published every second and on change."""

    # ENGINE@HOST or ENGINE.N@HOST; also its Celery node name and its own queue
    pool: str
    engine: EngineName
    host: str
    device: str
    stand_in: bool = False
    # job kinds the engine program can do
    kinds: tuple[str, ...] = ("generate", "score", "train")
    slots: int
    in_flight: int = 0
    state: PoolState = PoolState.STARTING
    why: str | None = None
    pressure: Pressure = Pressure.OK
    # tokens of KV cache; absent: not bounded by tokens
    kv_tokens_total: int | None = None
    kv_tokens_free: int | None = None
    # tokens of prompts that were read whose KV cache is kept for prompts that begin alike; absent:
    # none is
    prefix_cache_tokens: int | None = None
    # what a run needs beside weights and KV cache, its share of a full batch; absent: not told
    working_bytes: int | None = None
    memory_free_bytes: int | None = None
    # models whose files it can read, and those in memory
    models: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    storage: str | None = None
    rates: Rates = Rates()
    published_ms: int = 0


class PredictionError(_Wire):
    """Predicted lengths of the last runs, less what they were, by what they were."""

    runs: int
    # of its size
    p50: float
    p95: float
    # mean with its sign: above 0, runs end sooner than predicted
    bias: float


class RouterDetail(_Wire):
    """What the router that decides learned, for people."""

    router: str
    profile: str
    # leases granted lately
    leased_per_s: float
    # seconds after which a producer that was refused should try again
    retry_s: float
    # predicted lengths of the last runs, less what they were, by what they were: how many, the
    # size of the error, and its mean with the sign (above 0: runs end sooner than predicted)
    runs: int = 0
    error_p50: float | None = None
    error_p95: float | None = None
    error_bias: float | None = None
    # the same by pool
    errors: dict[str, PredictionError] = {}
    # by pool: how many times longer than by its rates reading and decoding take, where not as told
    drag: dict[str, tuple[float, float]] = {}


class HostDetail(_Wire):
    """A host, for people."""

    host: str
    cores: int
    cpu_percent: float | None = None
    cpu_percent_per_core: tuple[float, ...] = ()
    load: tuple[float, ...] = ()
    # share of the last 10 s in which some task waited, in percent
    stall_cpu_percent: float | None = None
    stall_memory_percent: float | None = None
    stall_io_percent: float | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_used_bytes: int | None = None
    # memory the kernel keeps compressed (zram, zswap)
    compressed_bytes: int | None = None
    major_faults_per_s: float | None = None
    context_switches_per_s: float | None = None


class ProcessDetail(_Wire):
    """One process of a pool: the worker or its engine."""

    name: str
    pid: int
    cpu_percent: float | None = None
    # resident, proportional and unique set size, and the highest resident seen
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    uss_bytes: int | None = None
    peak_bytes: int | None = None
    major_faults: int | None = None
    # share of wall time spent runnable but without a core, in percent
    run_queue_wait_percent: float | None = None
    threads: int | None = None


class DeviceDetail(_Wire):
    """An accelerator, as its driver tells."""

    device: str
    name: str | None = None
    utilisation_percent: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_by_pid: dict[int, int] = {}
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    ecc_errors: int | None = None
    mig: str | None = None


class PoolDetail(_Wire):
    """A pool's large record, for people."""

    snapshot: PoolSnapshot
    host: HostDetail
    processes: tuple[ProcessDetail, ...] = ()
    devices: tuple[DeviceDetail, ...] = ()
    # shares of wall time since the last report, in percent
    engine_busy_percent: float | None = None
    # sequences in the last step
    batch: int | None = None
    versions: dict[str, str] = {}
    program: str | None = None
