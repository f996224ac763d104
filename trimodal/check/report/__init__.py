"""Prints findings: for people, as JSON, and as SARIF for code review tools."""
