"""Entry point of `python3 hack/images`."""

import sys

from runyard_images.cli import main

sys.exit(main(sys.argv[1:]))
