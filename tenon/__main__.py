"""`python -m tenon` is `tenon`, where the command is not on the path."""

import sys

from tenon.cli import main

sys.exit(main())
