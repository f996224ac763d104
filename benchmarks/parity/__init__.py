"""Compares what is served with the framework that a checkpoint comes from; one command a task."""
