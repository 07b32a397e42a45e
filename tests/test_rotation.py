"""Changing the secret without a stop: `old,new` everywhere, then `new,old`, then `new`, each a
rolling restart, while every process goes on asking."""

import secrets

import pytest
from attack_fleet import Attacked
from workers import joined


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clear", "encrypted"])
def test_three_rolling_restarts_change_the_secret(tmp_path, mode):
    """W7: nobody sees an error, nobody refuses a neighbour, and what one process has loaded
    the others find."""
    old, new = secrets.token_hex(32), secrets.token_hex(32)
    with Attacked(tmp_path, mode, count=3, PEER_SECRET=old, PEER_HEIR="true") as fleet:
        workers = fleet.workers
        number = 0
        for step in f"{old},{new}", f"{new},{old}", new:
            for at in range(3):
                others = [worker for worker in workers if worker is not workers[at]]
                asked = [worker.ask("ask_until_told", f"rotate{number + n}")
                         for n, worker in enumerate(others)]  # fmt: skip
                number += 2
                workers[at]("close")
                refused = workers[at]("stats")["refused_tag"]
                workers[at].end()
                workers[at] = fleet.add(PEER_SECRET=step)
                workers.pop()
                workers[at]("start")
                joined(workers)
                for worker in others:
                    worker("tell_to_stop")
                for answer in asked:
                    got = answer.result(20)
                    assert got["errors"] == [] and got["asked"] > 20, got
                    assert got["slowest_s"] < 5, got
                assert refused == 0
            assert all(worker("stats")["refused_tag"] == 0 for worker in workers), step[:8]
            key = fleet.key(workers[0])
            workers[0]("lookup", "value", key)
            for worker in workers[1:]:
                assert worker("lookup", "value", key)["tier"] in ("owner", "heir", "local")
