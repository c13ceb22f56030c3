"""An engine program that computes nothing: it answers at a described rate. A complete, small
implementation of PROTOCOL.md; it imports only the standard library, and nothing of noidle."""
