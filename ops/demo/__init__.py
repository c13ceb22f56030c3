"""The main job, shown on this machine: train a mini model as a job while it answers others.
Knows the cluster only as a producer and an operator do."""
