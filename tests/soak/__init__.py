"""Serves under mixed load for an hour and says whether anything grows: `scripts/ci/soak`."""
