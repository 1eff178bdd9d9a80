"""Entry point of `python3 hack/cluster VERB`; everything is in the package beside it."""

import sys

from runyard_cluster.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
