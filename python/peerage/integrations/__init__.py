"""What tells a node that its process is about to go, server by server: `asgi`, `gunicorn`,
`celery`. Each closes every Peers of the process, which drains: the sooner it is told, the
less its peers have to do again. `atexit` is the last resort where no hook runs.
"""
