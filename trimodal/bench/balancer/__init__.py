"""Measures servers behind HAProxy: three against one, prefix affinity, a rolling restart, a kill."""
