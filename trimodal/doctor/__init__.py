"""Says what a machine lacks for serving a profile, before anything is started."""
