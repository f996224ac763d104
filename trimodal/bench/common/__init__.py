"""Makes what is sent, and starts servers on free ports."""
