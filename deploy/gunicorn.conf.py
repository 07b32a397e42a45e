"""gunicorn for a fleet of peerage workers: in the container, under systemd, or by hand.

    gunicorn -c deploy/gunicorn.conf.py

APPLICATION names another application than the demo. Every worker is a node of its own,
so nothing is preloaded that would have to be shared, and a worker that is replaced
overlaps with its successor: that is why one port more than workers is published.
"""

import os

from peerage.integrations.gunicorn import worker_exit  # noqa: F401  a hook: leave in order

wsgi_app = os.environ.get("APPLICATION", "peerage.demo.app:app")
bind = os.environ.get("WEB_LISTEN", "0.0.0.0:8000")
workers = int(os.environ.get("WEB_CONCURRENCY", "4"))
worker_class = os.environ.get("WORKER_CLASS", "uvicorn_worker.UvicornWorker")
preload_app = False

# A worker that is told to go drains first: up to 5 s for the layer, the rest for requests.
graceful_timeout = 20
timeout = 60
keepalive = 75

# Workers are recycled now and then (0: never), and not all at once.
max_requests = int(os.environ.get("MAX_REQUESTS", "0"))
max_requests_jitter = max_requests // 5

# The heartbeat file: in memory, and writable where the root file system is not.
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None
control_socket_disable = True
accesslog = os.environ.get("ACCESS_LOG") or None
errorlog = "-"
