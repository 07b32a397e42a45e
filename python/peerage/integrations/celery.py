"""Celery: once, where the application is made,

    peerage.integrations.celery.connect()

Every process of a prefork pool is a node of its own, and leaves when it is recycled
(`worker_max_tasks_per_child`) or the worker stops; so does the one process of the other pools.
"""

from __future__ import annotations

from typing import Any

from celery import signals

from ..peers import close_all


def connect() -> None:
    """Close this process's nodes when a worker process or the worker shuts down."""
    # Celery keeps receivers weakly: a function of this module stays.
    signals.worker_process_shutdown.connect(_close)
    signals.worker_shutdown.connect(_close)


def _close(**said: Any) -> None:
    close_all()
