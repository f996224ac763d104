"""What a machine lacks for serving a profile, said before anything is started. Changes nothing."""
