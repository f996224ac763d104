"""Shares what every bench needs: load, samples, counters and servers on free ports."""
