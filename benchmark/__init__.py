"""GradLeak: what a server learns of a client's data from the update that client sends."""
