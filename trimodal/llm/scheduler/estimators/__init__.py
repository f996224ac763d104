"""Estimators that learn one number each."""
