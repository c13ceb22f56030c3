"""The same requests in virtual time. Knows nothing of the real run."""

from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Replay
from routing.simulation.schedulers import NOIDLE, Stage, make_scheduler
from tests.bench.reality.lives import Life, simulated_life
from tests.bench.reality.slices import Slice


def simulate(slice_: Slice) -> list[Life]:
    """Under the policy of production."""
    described, requests = slice_.described, slice_.requests
    pools = [SimulatedPool(pool) for pool in described.pools]
    stage = Stage(described=described, pools=pools, requests=requests, seed=0)
    outcome = Replay(requests, pools, make_scheduler(NOIDLE, stage)).run()
    names = [pool.pool for pool in described.pools]
    return [simulated_life(fate, names) for fate in outcome.fates]
