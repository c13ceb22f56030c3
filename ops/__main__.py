"""Runs a verb of the cluster: what the supervisor starts its processes with."""

from ops.cli import app

if __name__ == "__main__":
    app(prog_name="noidle")
