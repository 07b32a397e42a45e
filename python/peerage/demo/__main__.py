"""`python -m peerage.demo`: one worker of the reader."""
from __future__ import annotations

import argparse
import sys

import uvicorn

from .lifetime import end_with_parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m peerage.demo", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--with-parent", action="store_true",
                        help="end when standard input closes")
    args = parser.parse_args()
    if args.with_parent:
        end_with_parent()
    try:
        # Imported by name and not run as __main__: a function there has no name other nodes know.
        from .app import app
    except ValueError as error:
        sys.exit(f"peerage demo: {error}")
    uvicorn.run(app, host=args.host, port=args.port, log_level=args.log_level,
                access_log=False, timeout_keep_alive=75)


if __name__ == "__main__":
    main()
