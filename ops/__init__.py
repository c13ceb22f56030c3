"""The operator's side: the command line, the local cluster, Flower, metrics and checks."""
