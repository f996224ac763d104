"""Defines the faults: each knows what server it needs, how it is made and taken away, whom it may harm."""
