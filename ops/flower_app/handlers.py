"""What differs from Flower's own pages: guarded figures, and controls that cannot work here
answer so instead of pretending."""

import ipaddress
from typing import Any

import tornado.web
from flower.api.control import ControlHandler
from flower.views import BaseHandler
from flower.views.monitor import Healthcheck, Metrics
from flower.views.workers import WorkerView

# what a reverse proxy on this host adds: its visitors are not local
_FORWARDED = ("X-Forwarded-For", "X-Real-Ip", "Forwarded", "Via")


class _Guarded(BaseHandler):  # type: ignore[misc]  # Flower has no types
    """Open to programs on this host; everybody else needs the password."""

    def prepare(self) -> None:
        if not _is_local(self.request.remote_ip, self.request.headers):
            # raises 401 unless the password is there
            self.get_current_user()


class GuardedMetrics(_Guarded, Metrics):  # type: ignore[misc]  # Flower has no types
    """Prometheus figures: pool names, task names, counts."""


class GuardedHealthcheck(_Guarded, Healthcheck):  # type: ignore[misc]  # Flower has no types
    """Whether Flower answers."""


class PoolPage(WorkerView):  # type: ignore[misc]  # Flower has no types
    """A pool's page without its control panels: slots, limits and ends of jobs are noidle's."""

    def render(self, template: str, **values: Any) -> Any:
        values["read_only"] = True
        return super().render(template, **values)


class NotHere(ControlHandler):  # type: ignore[misc]  # Flower has no types
    """A Celery control that noidle's pools do not have."""

    @tornado.web.authenticated
    async def post(self, target: str) -> None:
        self.set_status(409)
        self.write(
            {
                "message": f"{target} is left as it is: slots are set with `noidle up --slots` or "
                "`noidle worker --slots`, queues follow from the pool's engine, and a job ends "
                "with Revoke or `noidle cancel`"
            }
        )


def _is_local(address: str | None, headers: Any) -> bool:
    if any(name in headers for name in _FORWARDED):
        return False
    try:
        return ipaddress.ip_address(address or "").is_loopback
    except ValueError:
        return False


REPLACED: tuple[tuple[str, type[BaseHandler]], ...] = (
    (r"/metrics", GuardedMetrics),
    (r"/healthcheck", GuardedHealthcheck),
    (r"/worker/(.+)", PoolPage),
    (r"/api/worker/pool/(?:restart|grow|shrink|autoscale)/(.+)", NotHere),
    (r"/api/worker/queue/(?:add-consumer|cancel-consumer)/(.+)", NotHere),
    (r"/api/task/(?:timeout|rate-limit)/(.+)", NotHere),
)
"""Looked up before Flower's own routes."""
