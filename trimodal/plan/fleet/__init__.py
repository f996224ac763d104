"""Simulates replicas behind a balancer before they are rented: `trimodal plan fleet`."""
