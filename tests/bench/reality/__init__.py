"""Whether the simulation is right: a slice of a trace on a real cluster, and in virtual time on the
same description. Knows nothing of how either decides."""
