"""Attacks on a served stack on fake engines: what one tenant may learn of another, and what a flood takes."""
