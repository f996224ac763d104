"""Makes the tables of docs/benchmarks*.md: python -m benchmarks.NAME from the repository's root."""

import os

# As the server's processes have it: else numpy's threads spin for 25 ms after each product, which counts as
# the processor's time of whatever is measured. It is read when numpy is imported.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
