"""gunicorn: in the configuration file,

    from peerage.integrations.gunicorn import worker_exit

A worker that is recycled (`max_requests`), reloaded or told to stop leaves the others in order
as soon as its last request is answered. With an ASGI worker class the application's lifespan
has done so before, and this finds nothing left to do.
"""

from __future__ import annotations

from typing import Any

from ..peers import close_all


def worker_exit(server: Any, worker: Any) -> None:
    """gunicorn's server hook: close this process's nodes."""
    close_all()
