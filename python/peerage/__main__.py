"""`python -m peerage` is the command `peerage`."""

import sys

from .cli import main

sys.exit(main())
